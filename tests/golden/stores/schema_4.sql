BEGIN TRANSACTION;
CREATE TABLE appends (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, -- of its last event; never used twice, so that a reader can resume after it
    task INTEGER NOT NULL,                 -- the number of the task
    version INTEGER NOT NULL,              -- of the task after it
    -- An id that a caller chose for the first message in it, and a digest of what was said, so that the same message
    -- sent twice makes one task. It is claimed for the inbox and the scope of the task.
    message_key INTEGER,
    message_id TEXT,
    digest TEXT,
    body TEXT NOT NULL                     -- a JSON list of its events; see event_rows.py
);
INSERT INTO "appends" VALUES(10,10,10,-3280072976497272011,'m-1','6372fd5524d71e42e9747aec547dee01','[["task_opened",1794800330561465,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-a741-7f91-b1d8-4c0e00ff910c","message":{"message_id":"m-1","role":"user","parts":[{"text":"report"},{"data":{"n":[1.5,null,1000000000000000000000000000000,-0.0],"\u043a\u043b\u044e\u0447":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''","":{}},"metadata":{"x":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"}},{"url":"","bytes":"AAECAwQF/w==","name":"f.bin","media_type":"application/octet-stream"},{"url":"https://example.com/x","media_type":"text/html"}],"metadata":{"k":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"},"extensions":["https://example.com/e"]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["state_changed",1794800330561465,{"state":"working","note":"looking"}],["artifact_added",1794800330561465,{"artifact":{"artifact_id":"page","parts":[{"text":"# report","media_type":"text/markdown"}],"name":"page"},"append":false,"last_chunk":true}],["artifact_added",1794800330561465,{"artifact":{"artifact_id":"file","parts":[{"url":"","bytes":"YnkgaGFuZAo=","name":"a.txt","media_type":"text/plain"}],"name":"file"},"append":false,"last_chunk":true}],["artifact_added",1794800330561465,{"artifact":{"artifact_id":"facts","parts":[{"data":{"passed":12,"ratio":0.5}}],"name":"facts"},"append":false,"last_chunk":true}],["artifact_added",1794800330561465,{"artifact":{"artifact_id":"table","parts":[{"url":"","bytes":"YSxiCg==","name":"t.csv","media_type":"text/csv"}],"name":"table"},"append":false,"last_chunk":false}],["artifact_added",1794800330561465,{"artifact":{"artifact_id":"table","parts":[{"url":"","bytes":"MSwyCg==","name":"t.csv","media_type":"text/csv"}],"name":"table"},"append":true,"last_chunk":true}],["artifact_added",1794800330561465,{"artifact":{"artifact_id":"9bc32ecc-answer","parts":[{"text":"done"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794800330561465,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794800330561465,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(14,14,4,8996027584356553918,'m-2','cf48e91e7989361699692f9926b6f9ec','[["task_opened",1794800330588560,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-a75c-74fb-b5e5-8e77366c8b70","message":{"message_id":"m-2","role":"user","parts":[{"text":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["artifact_added",1794800330588560,{"artifact":{"artifact_id":"54ecf416-answer","parts":[{"text":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794800330588560,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794800330588560,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(17,17,3,-2183356525944939824,'m-3','d1209023fc303b89f41e28d269d32e2a','[["task_opened",1794800330600448,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-a768-76c8-9182-ba0c157d000b","message":{"message_id":"m-3","role":"user","parts":[{"text":"fail"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["receipt_changed",1794800330600448,{"step":"failed","source":"journal","evidence":"no credit"}],["state_changed",1794800330600448,{"state":"failed","reason":"quota","note":"no credit"}]]');
INSERT INTO "appends" VALUES(20,20,3,7781638337111184904,'m-4','d9905bea544c5ef458d4ab909121b55b','[["task_opened",1794800330609073,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-a771-7157-89f4-2a36cee7f629","message":{"message_id":"m-4","role":"user","parts":[{"text":"refuse"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["receipt_changed",1794800330609073,{"step":"failed","source":"journal","evidence":"not for me"}],["state_changed",1794800330609073,{"state":"rejected","reason":"rejected","note":"not for me"}]]');
INSERT INTO "appends" VALUES(24,24,4,-422799454064946657,'m-5','6864cf16f5dfffd5425d89d3e25a5417','[["task_opened",1794800330630060,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-a786-74f5-9c80-deb6177c8e4c","message":{"message_id":"m-5","role":"user","parts":[{"text":"direct"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["artifact_added",1794800330630060,{"artifact":{"artifact_id":"5bfdbb29-answer","parts":[{"text":"a plain message"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794800330630060,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794800330630060,{"state":"completed","reason":"direct_message"}]]');
INSERT INTO "appends" VALUES(25,25,1,1768835971110196169,'m-6','f022ef3212edfbcbf378e1074dcc5b40','[["task_opened",1794800330644418,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-a794-7409-8d0f-aac53807e40a","message":{"message_id":"m-6","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(31,25,7,NULL,NULL,NULL,'[["receipt_changed",1794800330660268,{"step":"submitted","source":"script","evidence":"rule 2"}],["state_changed",1794800330660268,{"state":"working"}],["receipt_changed",1794800330660308,{"step":"turn_started","source":"script","evidence":"rule 2"}],["message_added",1794800330660343,{"message":{"message_id":"943c2bde-85de-4b49-9c52-2a5facec2ab6.2","role":"agent","parts":[{"text":"Which one?"}]}}],["receipt_changed",1794800330660343,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794800330660343,{"state":"input_required","note":"Which one?"}]]');
INSERT INTO "appends" VALUES(33,25,9,NULL,NULL,NULL,'[["receipt_changed",1794800330672580,{"step":"canceled","source":"journal","evidence":"canceled by request"}],["state_changed",1794800330672580,{"state":"canceled","reason":"canceled","note":"canceled by request"}]]');
INSERT INTO "appends" VALUES(34,34,1,3222706177794595013,'m-7','f022ef3212edfbcbf378e1074dcc5b40','[["task_opened",1794800330676238,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-a7b4-7c2c-94e9-c6658a9d8f6b","message":{"message_id":"m-7","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(40,34,7,NULL,NULL,NULL,'[["receipt_changed",1794800330677298,{"step":"submitted","source":"script","evidence":"rule 2"}],["state_changed",1794800330677298,{"state":"working"}],["receipt_changed",1794800330677328,{"step":"turn_started","source":"script","evidence":"rule 2"}],["message_added",1794800330677362,{"message":{"message_id":"5af999ce-204a-4ade-8dff-12ec4baace8c.2","role":"agent","parts":[{"text":"Which one?"}]}}],["receipt_changed",1794800330677362,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794800330677362,{"state":"input_required","note":"Which one?"}]]');
INSERT INTO "appends" VALUES(43,34,10,-7692789412172540924,'m-8','7ceecd44031cc1f3c3cd3bb65c4bb70c','[["message_added",1794800330679228,{"message":{"message_id":"m-8","role":"user","parts":[{"text":"the first"}]}}],["receipt_changed",1794800330679228,{"step":"queued","source":"journal","evidence":""}],["state_changed",1794800330679228,{"state":"submitted"}]]');
INSERT INTO "appends" VALUES(49,34,16,NULL,NULL,NULL,'[["receipt_changed",1794800330680138,{"step":"submitted","source":"script","evidence":"the steps after the question"}],["state_changed",1794800330680138,{"state":"working"}],["receipt_changed",1794800330680166,{"step":"turn_started","source":"script","evidence":"the steps after the question"}],["artifact_added",1794800330680193,{"artifact":{"artifact_id":"5af999ce-answer","parts":[{"text":"you chose the first"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794800330680193,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794800330680193,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(50,50,1,2693945237503532666,'m-9','f022ef3212edfbcbf378e1074dcc5b40','[["task_opened",1794800330684048,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-a7bc-721d-890c-acd209e588ff","message":{"message_id":"m-9","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(56,50,7,NULL,NULL,NULL,'[["receipt_changed",1794800330684982,{"step":"submitted","source":"script","evidence":"rule 2"}],["state_changed",1794800330684982,{"state":"working"}],["receipt_changed",1794800330685009,{"step":"turn_started","source":"script","evidence":"rule 2"}],["message_added",1794800330685038,{"message":{"message_id":"73038a3d-8b6a-4de8-aeee-5aa7ce37cd76.2","role":"agent","parts":[{"text":"Which one?"}]}}],["receipt_changed",1794800330685038,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794800330685038,{"state":"input_required","note":"Which one?"}]]');
INSERT INTO "appends" VALUES(57,57,1,-3233419421198612429,'m-10','def22e4c98922beda81481ef65b22a85','[["task_opened",1794800330696230,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-a7c8-784d-b151-f3847c4f081b","message":{"message_id":"m-10","role":"user","parts":[{"text":"log in"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(63,57,7,NULL,NULL,NULL,'[["receipt_changed",1794800330697830,{"step":"submitted","source":"script","evidence":"rule 3"}],["state_changed",1794800330697830,{"state":"working"}],["receipt_changed",1794800330697862,{"step":"turn_started","source":"script","evidence":"rule 3"}],["message_added",1794800330697895,{"message":{"message_id":"b295e8a0-d695-4230-8114-e2124e36bb0c.2","role":"agent","parts":[{"text":"Show your token."}]}}],["receipt_changed",1794800330697895,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794800330697895,{"state":"auth_required","note":"Show your token."}]]');
INSERT INTO "appends" VALUES(67,67,4,-202660547671470470,'m-11','d5ab741d54ced0c1bc815713c2aeda6f','[["task_opened",1794800330720411,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v0_3","context_id":"01a1e26f-a7e0-77f7-b2ba-8e65037c584e","message":{"message_id":"m-11","role":"user","parts":[{"text":"by 0.3"}]},"metadata":{"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["artifact_added",1794800330720411,{"artifact":{"artifact_id":"6b114ef1-answer","parts":[{"text":"by 0.3"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794800330720411,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794800330720411,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(68,68,1,NULL,NULL,NULL,'[["task_opened",1794800330723269,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"synapse","context_id":"01a1e26f-a7e3-72b9-b20d-c6281cd6330c","message":{"message_id":"9c1af580-8cbe-43f7-8fce-475cb6ec23bc","role":"user","parts":[{"text":"wait for a reply"}]},"metadata":{"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false},"queued":false}]]');
INSERT INTO "appends" VALUES(69,69,1,-636833086710317260,'m-12','5d5f2ef502243519f3d24a7708247c6d','[["task_opened",1794800330726779,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-a7e6-759f-a811-463c468e2565","message":{"message_id":"m-12","role":"user","parts":[{"text":"wait"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(73,69,5,NULL,NULL,NULL,'[["receipt_changed",1794800330728665,{"step":"submitted","source":"script","evidence":"rule 7"}],["state_changed",1794800330728665,{"state":"working"}],["receipt_changed",1794800330728695,{"step":"turn_started","source":"script","evidence":"rule 7"}],["state_changed",1794800330728754,{"state":"working","note":"working on it"}]]');
INSERT INTO "appends" VALUES(74,74,1,5498124715366556487,'m-13','325614728568122c1888c3a1d654fe45','[["task_opened",1794800330742362,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-a7f6-7dbf-808a-ff71a04fe82a","message":{"message_id":"m-13","role":"user","parts":[{"text":"behind it"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
CREATE TABLE deliveries (
    push INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    at INTEGER NOT NULL,
    status INTEGER NOT NULL,
    error TEXT NOT NULL,
    next_try INTEGER,
    PRIMARY KEY (push, seq)
) WITHOUT ROWID;
CREATE TABLE inboxes (
    inbox TEXT PRIMARY KEY,
    holder TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "inboxes" VALUES('ada','17909:1393514');
CREATE TABLE pushes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice: it is part of what receivers know a notification by
    task_id TEXT NOT NULL,
    config_id TEXT NOT NULL,
    inbox TEXT NOT NULL,
    told INTEGER NOT NULL,
    is_open INTEGER NOT NULL,                 -- there may be more to tell
    body TEXT NOT NULL,
    UNIQUE (task_id, config_id)
);
INSERT INTO "pushes" VALUES(1,'73038a3d-8b6a-4de8-aeee-5aa7ce37cd76','p-1','ada',56,1,'{"url":"http://127.0.0.1:9/hook","token":"t","scheme":"","credentials":"","dialect":"a2a_v1","set_by":""}');
INSERT INTO "pushes" VALUES(2,'b295e8a0-d695-4230-8114-e2124e36bb0c','p-1','ada',63,1,'{"url":"http://127.0.0.1:9/hook","token":"t","scheme":"","credentials":"","dialect":"a2a_v1","set_by":""}');
CREATE TABLE snapshots (
    number INTEGER PRIMARY KEY, -- of the task
    version INTEGER NOT NULL,
    body TEXT NOT NULL
);
INSERT INTO "snapshots" VALUES(25,9,'{"id":"943c2bde-85de-4b49-9c52-2a5facec2ab6","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"01a1e26f-a794-7409-8d0f-aac53807e40a","scope":"local","dialect":"a2a_v1","state":"canceled","created_at":1794800330644418,"updated_at":1794800330672580,"version":9,"priority":3,"queued":true,"hidden":false,"deadline":null,"receipts":[["queued",1794800330644418,"journal",""],["submitted",1794800330660268,"script","rule 2"],["turn_started",1794800330660308,"script","rule 2"],["answered",1794800330660343,"driver","the agent asked for input"],["canceled",1794800330672580,"journal","canceled by request"]],"history":[{"message_id":"m-6","role":"user","parts":[{"text":"ask me"}]},{"message_id":"943c2bde-85de-4b49-9c52-2a5facec2ab6.2","role":"agent","parts":[{"text":"Which one?"}]}],"artifacts":[],"reason":"canceled","note":"canceled by request","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(34,16,'{"id":"5af999ce-204a-4ade-8dff-12ec4baace8c","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"01a1e26f-a7b4-7c2c-94e9-c6658a9d8f6b","scope":"local","dialect":"a2a_v1","state":"completed","created_at":1794800330676238,"updated_at":1794800330680193,"version":16,"priority":3,"queued":true,"hidden":false,"deadline":null,"receipts":[["queued",1794800330676238,"journal",""],["submitted",1794800330677298,"script","rule 2"],["turn_started",1794800330677328,"script","rule 2"],["answered",1794800330677362,"driver","the agent asked for input"],["queued",1794800330679228,"journal",""],["submitted",1794800330680138,"script","the steps after the question"],["turn_started",1794800330680166,"script","the steps after the question"],["answered",1794800330680193,"script","the turn ended"]],"history":[{"message_id":"m-7","role":"user","parts":[{"text":"ask me"}]},{"message_id":"5af999ce-204a-4ade-8dff-12ec4baace8c.2","role":"agent","parts":[{"text":"Which one?"}]},{"message_id":"m-8","role":"user","parts":[{"text":"the first"}]}],"artifacts":[{"artifact_id":"5af999ce-answer","parts":[{"text":"you chose the first"}],"name":"answer","metadata":{"source":"script","inferred":false}}],"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(50,7,'{"id":"73038a3d-8b6a-4de8-aeee-5aa7ce37cd76","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"01a1e26f-a7bc-721d-890c-acd209e588ff","scope":"local","dialect":"a2a_v1","state":"input_required","created_at":1794800330684048,"updated_at":1794800330685038,"version":7,"priority":3,"queued":true,"hidden":false,"deadline":null,"receipts":[["queued",1794800330684048,"journal",""],["submitted",1794800330684982,"script","rule 2"],["turn_started",1794800330685009,"script","rule 2"],["answered",1794800330685038,"driver","the agent asked for input"]],"history":[{"message_id":"m-9","role":"user","parts":[{"text":"ask me"}]},{"message_id":"73038a3d-8b6a-4de8-aeee-5aa7ce37cd76.2","role":"agent","parts":[{"text":"Which one?"}]}],"artifacts":[],"note":"Which one?","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(57,7,'{"id":"b295e8a0-d695-4230-8114-e2124e36bb0c","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"01a1e26f-a7c8-784d-b151-f3847c4f081b","scope":"local","dialect":"a2a_v1","state":"auth_required","created_at":1794800330696230,"updated_at":1794800330697895,"version":7,"priority":3,"queued":true,"hidden":false,"deadline":null,"receipts":[["queued",1794800330696230,"journal",""],["submitted",1794800330697830,"script","rule 3"],["turn_started",1794800330697862,"script","rule 3"],["answered",1794800330697895,"driver","the agent asked for input"]],"history":[{"message_id":"m-10","role":"user","parts":[{"text":"log in"}]},{"message_id":"b295e8a0-d695-4230-8114-e2124e36bb0c.2","role":"agent","parts":[{"text":"Show your token."}]}],"artifacts":[],"note":"Show your token.","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
CREATE TABLE task_counts (
    inbox TEXT NOT NULL,
    scope TEXT NOT NULL,
    state TEXT NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (inbox, scope, state)
) WITHOUT ROWID;
INSERT INTO "task_counts" VALUES('ada','local','auth_required',1);
INSERT INTO "task_counts" VALUES('ada','local','canceled',1);
INSERT INTO "task_counts" VALUES('ada','local','completed',5);
INSERT INTO "task_counts" VALUES('ada','local','failed',1);
INSERT INTO "task_counts" VALUES('ada','local','input_required',1);
INSERT INTO "task_counts" VALUES('ada','local','rejected',1);
INSERT INTO "task_counts" VALUES('ada','local','submitted',2);
INSERT INTO "task_counts" VALUES('ada','local','working',1);
CREATE TABLE tasks (
    -- The seq of its first append: it is known when the task is written, and the text of a task that is whole there is
    -- found without an index. Tasks from before this schema keep their numbers, of which there are fewer than seqs.
    number INTEGER PRIMARY KEY,
    key INTEGER NOT NULL,         -- id_key(id)
    id TEXT NOT NULL,             -- once only: whoever opens a task looks first
    inbox TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    context_key INTEGER NOT NULL, -- context_key(context_id)
    context_id TEXT NOT NULL,
    parent_id TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    version INTEGER NOT NULL,
    hidden INTEGER NOT NULL
);
INSERT INTO "tasks" VALUES(10,-5088395557435251869,'9bc32ecc-9fed-4753-aeb4-954ecf382f30','ada','synapse-scripted-8180','local',-9105748002391097455,'01a1e26f-a741-7f91-b1d8-4c0e00ff910c','','completed',1794800330561465,1794800330561465,10,0);
INSERT INTO "tasks" VALUES(14,-5389571376464776906,'54ecf416-e835-47b7-80b6-bc49f1761ae6','ada','synapse-scripted-8180','local',-9105748002389330693,'01a1e26f-a75c-74fb-b5e5-8e77366c8b70','','completed',1794800330588560,1794800330588560,4,0);
INSERT INTO "tasks" VALUES(17,-5304620012183199182,'6b449db2-2bbc-46da-b690-35ee54938e48','ada','synapse-scripted-8180','local',-9105748002388543800,'01a1e26f-a768-76c8-9182-ba0c157d000b','','failed',1794800330600448,1794800330600448,3,0);
INSERT INTO "tasks" VALUES(20,-2206145465040870302,'ab2cafdb-9f8d-442e-b649-48850f957cdf','ada','synapse-scripted-8180','local',-9105748002387955369,'01a1e26f-a771-7157-89f4-2a36cee7f629','','rejected',1794800330609073,1794800330609073,3,0);
INSERT INTO "tasks" VALUES(24,-5376622423793585607,'5bfdbb29-8d60-4669-b4b3-89b25ada70f6','ada','synapse-scripted-8180','local',-9105748002386578187,'01a1e26f-a786-74f5-9c80-deb6177c8e4c','','completed',1794800330630060,1794800330630060,4,0);
INSERT INTO "tasks" VALUES(25,-5101395976763841435,'943c2bde-85de-4b49-9c52-2a5facec2ab6','ada','synapse-scripted-8180','local',-9105748002385660919,'01a1e26f-a794-7409-8d0f-aac53807e40a','','canceled',1794800330644418,1794800330672580,9,0);
INSERT INTO "tasks" VALUES(34,-5376904084144430235,'5af999ce-204a-4ade-8dff-12ec4baace8c','ada','synapse-scripted-8180','local',-9105748002383561684,'01a1e26f-a7b4-7c2c-94e9-c6658a9d8f6b','','completed',1794800330676238,1794800330680193,16,0);
INSERT INTO "tasks" VALUES(50,-5245796144409136284,'73038a3d-8b6a-4de8-aeee-5aa7ce37cd76','ada','synapse-scripted-8180','local',-9105748002383039971,'01a1e26f-a7bc-721d-890c-acd209e588ff','','input_required',1794800330684048,1794800330685038,7,0);
INSERT INTO "tasks" VALUES(57,-2147591170808061648,'b295e8a0-d695-4230-8114-e2124e36bb0c','ada','synapse-scripted-8180','local',-9105748002382251955,'01a1e26f-a7c8-784d-b151-f3847c4f081b','','auth_required',1794800330696230,1794800330697895,7,0);
INSERT INTO "tasks" VALUES(67,-5304623323686803919,'6b114ef1-0d1b-4d23-9845-1dfeff07259d','ada','synapse-scripted-8180','local',-9105748002380679177,'01a1e26f-a7e0-77f7-b2ba-8e65037c584e','','completed',1794800330720411,1794800330720411,4,0);
INSERT INTO "tasks" VALUES(68,-1859923542797031839,'f09db2fa-982e-4dfa-aded-8fa49980df09','ada','synapse-scripted-8180','local',-9105748002380483911,'01a1e26f-a7e3-72b9-b20d-c6281cd6330c','','submitted',1794800330723269,1794800330723269,1,0);
INSERT INTO "tasks" VALUES(69,-5460833138863032730,'4791dc6f-f445-47f0-8f79-2aa435a2488f','ada','synapse-scripted-8180','local',-9105748002380286561,'01a1e26f-a7e6-759f-a811-463c468e2565','','working',1794800330726779,1794800330728754,5,0);
INSERT INTO "tasks" VALUES(74,-5533685679777042333,'34f1f90c-51d9-4329-879c-2cad147267ba','ada','synapse-scripted-8180','local',-9105748002379235905,'01a1e26f-a7f6-7dbf-808a-ff71a04fe82a','','submitted',1794800330742362,1794800330742362,1,0);
CREATE INDEX pushes_open ON pushes (inbox, number) WHERE is_open = 1;
CREATE INDEX deliveries_by_time ON deliveries (at);
CREATE UNIQUE INDEX appends_by_task ON appends (task, version);
CREATE INDEX appends_by_message ON appends (message_key) WHERE message_key IS NOT NULL;
CREATE INDEX tasks_by_key ON tasks (key);
CREATE INDEX tasks_by_inbox ON tasks (inbox, updated_at, number, hidden, scope, state);
CREATE INDEX tasks_by_change ON tasks (updated_at, number, hidden, scope, state);
CREATE INDEX tasks_by_context ON tasks (context_key);
CREATE INDEX tasks_by_agent ON tasks (agent_id, updated_at, number, hidden, scope, state);
CREATE INDEX tasks_by_parent ON tasks (parent_id) WHERE parent_id <> '';
CREATE INDEX tasks_open ON tasks (inbox, created_at)
WHERE state IN ('submitted', 'working', 'input_required', 'auth_required');
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('appends',74);
INSERT INTO "sqlite_sequence" VALUES('pushes',2);
COMMIT;
PRAGMA application_id = 1398361665;
PRAGMA user_version = 4;
