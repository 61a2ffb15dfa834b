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
INSERT INTO "appends" VALUES(10,10,10,-3280072976497272011,'m-1','6372fd5524d71e42e9747aec547dee01','[["task_opened",1794912938996012,{"agent_id":"synapse-scripted-8181","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e925-ebf4-728e-899b-493c915425eb","message":{"message_id":"m-1","role":"user","parts":[{"text":"report"},{"data":{"n":[1.5,null,1000000000000000000000000000000,-0.0],"\u043a\u043b\u044e\u0447":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''","":{}},"metadata":{"x":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"}},{"url":"","bytes":"AAECAwQF/w==","name":"f.bin","media_type":"application/octet-stream"},{"url":"https://example.com/x","media_type":"text/html"}],"metadata":{"k":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"},"extensions":["https://example.com/e"]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["state_changed",1794912938996012,{"state":"working","note":"looking"}],["artifact_added",1794912938996012,{"artifact":{"artifact_id":"page","parts":[{"text":"# report","media_type":"text/markdown"}],"name":"page"},"append":false,"last_chunk":true}],["artifact_added",1794912938996012,{"artifact":{"artifact_id":"file","parts":[{"url":"","bytes":"YnkgaGFuZAo=","name":"a.txt","media_type":"text/plain"}],"name":"file"},"append":false,"last_chunk":true}],["artifact_added",1794912938996012,{"artifact":{"artifact_id":"facts","parts":[{"data":{"passed":12,"ratio":0.5}}],"name":"facts"},"append":false,"last_chunk":true}],["artifact_added",1794912938996012,{"artifact":{"artifact_id":"table","parts":[{"url":"","bytes":"YSxiCg==","name":"t.csv","media_type":"text/csv"}],"name":"table"},"append":false,"last_chunk":false}],["artifact_added",1794912938996012,{"artifact":{"artifact_id":"table","parts":[{"url":"","bytes":"MSwyCg==","name":"t.csv","media_type":"text/csv"}],"name":"table"},"append":true,"last_chunk":true}],["artifact_added",1794912938996012,{"artifact":{"artifact_id":"95a28948-answer","parts":[{"text":"done"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794912938996012,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794912938996012,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(14,14,4,8996027584356553918,'m-2','cf48e91e7989361699692f9926b6f9ec','[["task_opened",1794912939001383,{"agent_id":"synapse-scripted-8181","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e925-ebf9-7541-b9ef-f9e55843c7a9","message":{"message_id":"m-2","role":"user","parts":[{"text":"日本語 \"quoted\" \\ \ud800 \u0000   ''single''"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["artifact_added",1794912939001383,{"artifact":{"artifact_id":"9721d254-answer","parts":[{"text":"日本語 \"quoted\" \\ \ud800 \u0000   ''single''"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794912939001383,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794912939001383,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(17,17,3,-2183356525944939824,'m-3','d1209023fc303b89f41e28d269d32e2a','[["task_opened",1794912939003555,{"agent_id":"synapse-scripted-8181","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e925-ebfb-74bf-8e67-a03095812a31","message":{"message_id":"m-3","role":"user","parts":[{"text":"fail"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["receipt_changed",1794912939003555,{"step":"failed","source":"journal","evidence":"no credit"}],["state_changed",1794912939003555,{"state":"failed","reason":"quota","note":"no credit"}]]');
INSERT INTO "appends" VALUES(20,20,3,7781638337111184904,'m-4','d9905bea544c5ef458d4ab909121b55b','[["task_opened",1794912939006337,{"agent_id":"synapse-scripted-8181","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e925-ebfe-7023-b067-d5f1a99bcfa2","message":{"message_id":"m-4","role":"user","parts":[{"text":"refuse"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["receipt_changed",1794912939006337,{"step":"failed","source":"journal","evidence":"not for me"}],["state_changed",1794912939006337,{"state":"rejected","reason":"rejected","note":"not for me"}]]');
INSERT INTO "appends" VALUES(24,24,4,-422799454064946657,'m-5','6864cf16f5dfffd5425d89d3e25a5417','[["task_opened",1794912939008057,{"agent_id":"synapse-scripted-8181","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e925-ec00-7ee4-8b9c-7025488359f3","message":{"message_id":"m-5","role":"user","parts":[{"text":"direct"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["artifact_added",1794912939008057,{"artifact":{"artifact_id":"a0f4d3a5-answer","parts":[{"text":"a plain message"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794912939008057,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794912939008057,{"state":"completed","reason":"direct_message"}]]');
INSERT INTO "appends" VALUES(25,25,1,1768835971110196169,'m-6','f022ef3212edfbcbf378e1074dcc5b40','[["task_opened",1794912939014185,{"agent_id":"synapse-scripted-8181","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e925-ec06-79ac-9821-2296f659e876","message":{"message_id":"m-6","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(31,25,7,NULL,NULL,NULL,'[["receipt_changed",1794912939015456,{"step":"submitted","source":"script","evidence":"rule 2"}],["state_changed",1794912939015456,{"state":"working"}],["receipt_changed",1794912939015489,{"step":"turn_started","source":"script","evidence":"rule 2"}],["message_added",1794912939015521,{"message":{"message_id":"c9366be5-d89b-80a1-a03c-01a1e925ec06.2","role":"agent","parts":[{"text":"Which one?"}]}}],["receipt_changed",1794912939015521,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794912939015521,{"state":"input_required","note":"Which one?"}]]');
INSERT INTO "appends" VALUES(33,25,9,NULL,NULL,NULL,'[["receipt_changed",1794912939017591,{"step":"canceled","source":"journal","evidence":"canceled by request"}],["state_changed",1794912939017591,{"state":"canceled","reason":"canceled","note":"canceled by request"}]]');
INSERT INTO "appends" VALUES(34,34,1,3222706177794595013,'m-7','f022ef3212edfbcbf378e1074dcc5b40','[["task_opened",1794912939019382,{"agent_id":"synapse-scripted-8181","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e925-ec0b-7b1b-9b48-f6ff649374f6","message":{"message_id":"m-7","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(40,34,7,NULL,NULL,NULL,'[["receipt_changed",1794912939020326,{"step":"submitted","source":"script","evidence":"rule 2"}],["state_changed",1794912939020326,{"state":"working"}],["receipt_changed",1794912939020350,{"step":"turn_started","source":"script","evidence":"rule 2"}],["message_added",1794912939020375,{"message":{"message_id":"e4c6b0eb-5ddc-803d-bc62-01a1e925ec0b.2","role":"agent","parts":[{"text":"Which one?"}]}}],["receipt_changed",1794912939020375,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794912939020375,{"state":"input_required","note":"Which one?"}]]');
INSERT INTO "appends" VALUES(43,34,10,-7692789412172540924,'m-8','7ceecd44031cc1f3c3cd3bb65c4bb70c','[["message_added",1794912939023605,{"message":{"message_id":"m-8","role":"user","parts":[{"text":"the first"}]}}],["receipt_changed",1794912939023605,{"step":"queued","source":"journal","evidence":""}],["state_changed",1794912939023605,{"state":"submitted"}]]');
INSERT INTO "appends" VALUES(49,34,16,NULL,NULL,NULL,'[["receipt_changed",1794912939024549,{"step":"submitted","source":"script","evidence":"the steps after the question"}],["state_changed",1794912939024549,{"state":"working"}],["receipt_changed",1794912939024576,{"step":"turn_started","source":"script","evidence":"the steps after the question"}],["artifact_added",1794912939024601,{"artifact":{"artifact_id":"e4c6b0eb-answer","parts":[{"text":"you chose the first"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794912939024601,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794912939024601,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(50,50,1,2693945237503532666,'m-9','f022ef3212edfbcbf378e1074dcc5b40','[["task_opened",1794912939026391,{"agent_id":"synapse-scripted-8181","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e925-ec12-7a5e-96bd-5a6130aa6ca4","message":{"message_id":"m-9","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(56,50,7,NULL,NULL,NULL,'[["receipt_changed",1794912939027290,{"step":"submitted","source":"script","evidence":"rule 2"}],["state_changed",1794912939027290,{"state":"working"}],["receipt_changed",1794912939027313,{"step":"turn_started","source":"script","evidence":"rule 2"}],["message_added",1794912939027335,{"message":{"message_id":"06317e85-6727-8ca5-b754-01a1e925ec12.2","role":"agent","parts":[{"text":"Which one?"}]}}],["receipt_changed",1794912939027335,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794912939027335,{"state":"input_required","note":"Which one?"}]]');
INSERT INTO "appends" VALUES(57,57,1,-3233419421198612429,'m-10','def22e4c98922beda81481ef65b22a85','[["task_opened",1794912939030571,{"agent_id":"synapse-scripted-8181","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e925-ec16-78f7-887d-5cf746c63921","message":{"message_id":"m-10","role":"user","parts":[{"text":"log in"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(63,57,7,NULL,NULL,NULL,'[["receipt_changed",1794912939033609,{"step":"submitted","source":"script","evidence":"rule 3"}],["state_changed",1794912939033609,{"state":"working"}],["receipt_changed",1794912939033632,{"step":"turn_started","source":"script","evidence":"rule 3"}],["message_added",1794912939033656,{"message":{"message_id":"4207ab46-9d44-8373-a207-01a1e925ec16.2","role":"agent","parts":[{"text":"Show your token."}]}}],["receipt_changed",1794912939033656,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794912939033656,{"state":"auth_required","note":"Show your token."}]]');
INSERT INTO "appends" VALUES(67,67,4,-202660547671470470,'m-11','d5ab741d54ced0c1bc815713c2aeda6f','[["task_opened",1794912939037028,{"agent_id":"synapse-scripted-8181","inbox":"ada","scope":"local","dialect":"a2a_v0_3","context_id":"01a1e925-ec1d-7a90-943c-e14e306888ed","message":{"message_id":"m-11","role":"user","parts":[{"text":"by 0.3"}]},"metadata":{"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["artifact_added",1794912939037028,{"artifact":{"artifact_id":"32dfbb96-answer","parts":[{"text":"by 0.3"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794912939037028,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794912939037028,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(68,68,1,NULL,NULL,NULL,'[["task_opened",1794912939039046,{"agent_id":"synapse-scripted-8181","inbox":"ada","scope":"local","dialect":"synapse","context_id":"01a1e925-ec1f-75c6-ac8e-28e3f81838c0","message":{"message_id":"9bd87acd-80df-4786-b231-974221269e7a","role":"user","parts":[{"text":"wait for a reply"}]},"metadata":{"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false},"queued":false}]]');
INSERT INTO "appends" VALUES(69,69,1,-636833086710317260,'m-12','5d5f2ef502243519f3d24a7708247c6d','[["task_opened",1794912939040609,{"agent_id":"synapse-scripted-8181","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e925-ec20-7a82-ad46-9ef430b1a410","message":{"message_id":"m-12","role":"user","parts":[{"text":"wait"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(73,69,5,NULL,NULL,NULL,'[["receipt_changed",1794912939041620,{"step":"submitted","source":"script","evidence":"rule 7"}],["state_changed",1794912939041620,{"state":"working"}],["receipt_changed",1794912939041645,{"step":"turn_started","source":"script","evidence":"rule 7"}],["state_changed",1794912939041663,{"state":"working","note":"working on it"}]]');
INSERT INTO "appends" VALUES(74,74,1,5498124715366556487,'m-13','325614728568122c1888c3a1d654fe45','[["task_opened",1794912939044021,{"agent_id":"synapse-scripted-8181","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e925-ec24-79ed-baf3-5e60ad66b30f","message":{"message_id":"m-13","role":"user","parts":[{"text":"behind it"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
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
CREATE TABLE identity (store_id TEXT NOT NULL);
INSERT INTO "identity" VALUES('f3706139059629d266da2aa9985672fc');
CREATE TABLE inboxes (
    inbox TEXT PRIMARY KEY,
    held_by TEXT NOT NULL
, epoch INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
INSERT INTO "inboxes" VALUES('ada','9743:294740',1);
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
INSERT INTO "pushes" VALUES(1,'06317e85-6727-8ca5-b754-01a1e925ec12','p-1','ada',56,1,'{"url":"http://127.0.0.1:9/hook","token":"t","scheme":"","credentials":"","dialect":"a2a_v1","set_by":""}');
INSERT INTO "pushes" VALUES(2,'4207ab46-9d44-8373-a207-01a1e925ec16','p-1','ada',63,1,'{"url":"http://127.0.0.1:9/hook","token":"t","scheme":"","credentials":"","dialect":"a2a_v1","set_by":""}');
CREATE TABLE snapshots (
    number INTEGER PRIMARY KEY, -- of the task
    version INTEGER NOT NULL,
    body TEXT NOT NULL
);
INSERT INTO "snapshots" VALUES(25,9,'{"id":"c9366be5-d89b-80a1-a03c-01a1e925ec06","agent_id":"synapse-scripted-8181","inbox":"ada","context_id":"01a1e925-ec06-79ac-9821-2296f659e876","scope":"local","dialect":"a2a_v1","state":"canceled","created_at":1794912939014185,"updated_at":1794912939017591,"version":9,"priority":3,"queued":true,"hidden":false,"receipts":[["queued",1794912939014185,"journal",""],["submitted",1794912939015456,"script","rule 2"],["turn_started",1794912939015489,"script","rule 2"],["answered",1794912939015521,"driver","the agent asked for input"],["canceled",1794912939017591,"journal","canceled by request"]],"history":[{"message_id":"m-6","role":"user","parts":[{"text":"ask me"}]},{"message_id":"c9366be5-d89b-80a1-a03c-01a1e925ec06.2","role":"agent","parts":[{"text":"Which one?"}]}],"artifacts":[],"reason":"canceled","note":"canceled by request","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(34,16,'{"id":"e4c6b0eb-5ddc-803d-bc62-01a1e925ec0b","agent_id":"synapse-scripted-8181","inbox":"ada","context_id":"01a1e925-ec0b-7b1b-9b48-f6ff649374f6","scope":"local","dialect":"a2a_v1","state":"completed","created_at":1794912939019382,"updated_at":1794912939024601,"version":16,"priority":3,"queued":true,"hidden":false,"receipts":[["queued",1794912939019382,"journal",""],["submitted",1794912939020326,"script","rule 2"],["turn_started",1794912939020350,"script","rule 2"],["answered",1794912939020375,"driver","the agent asked for input"],["queued",1794912939023605,"journal",""],["submitted",1794912939024549,"script","the steps after the question"],["turn_started",1794912939024576,"script","the steps after the question"],["answered",1794912939024601,"script","the turn ended"]],"history":[{"message_id":"m-7","role":"user","parts":[{"text":"ask me"}]},{"message_id":"e4c6b0eb-5ddc-803d-bc62-01a1e925ec0b.2","role":"agent","parts":[{"text":"Which one?"}]},{"message_id":"m-8","role":"user","parts":[{"text":"the first"}]}],"artifacts":[{"artifact_id":"e4c6b0eb-answer","parts":[{"text":"you chose the first"}],"name":"answer","metadata":{"source":"script","inferred":false}}],"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(50,7,'{"id":"06317e85-6727-8ca5-b754-01a1e925ec12","agent_id":"synapse-scripted-8181","inbox":"ada","context_id":"01a1e925-ec12-7a5e-96bd-5a6130aa6ca4","scope":"local","dialect":"a2a_v1","state":"input_required","created_at":1794912939026391,"updated_at":1794912939027335,"version":7,"priority":3,"queued":true,"hidden":false,"receipts":[["queued",1794912939026391,"journal",""],["submitted",1794912939027290,"script","rule 2"],["turn_started",1794912939027313,"script","rule 2"],["answered",1794912939027335,"driver","the agent asked for input"]],"history":[{"message_id":"m-9","role":"user","parts":[{"text":"ask me"}]},{"message_id":"06317e85-6727-8ca5-b754-01a1e925ec12.2","role":"agent","parts":[{"text":"Which one?"}]}],"artifacts":[],"note":"Which one?","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(57,7,'{"id":"4207ab46-9d44-8373-a207-01a1e925ec16","agent_id":"synapse-scripted-8181","inbox":"ada","context_id":"01a1e925-ec16-78f7-887d-5cf746c63921","scope":"local","dialect":"a2a_v1","state":"auth_required","created_at":1794912939030571,"updated_at":1794912939033656,"version":7,"priority":3,"queued":true,"hidden":false,"receipts":[["queued",1794912939030571,"journal",""],["submitted",1794912939033609,"script","rule 3"],["turn_started",1794912939033632,"script","rule 3"],["answered",1794912939033656,"driver","the agent asked for input"]],"history":[{"message_id":"m-10","role":"user","parts":[{"text":"log in"}]},{"message_id":"4207ab46-9d44-8373-a207-01a1e925ec16.2","role":"agent","parts":[{"text":"Show your token."}]}],"artifacts":[],"note":"Show your token.","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
CREATE TABLE stored_bytes (
    inbox TEXT NOT NULL,
    scope TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (inbox, scope)
) WITHOUT ROWID;
INSERT INTO "stored_bytes" VALUES('ada','local',12323);
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
    id_key INTEGER NOT NULL,         -- id_key(id)
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
INSERT INTO "tasks" VALUES(10,-9105740622484691135,'95a28948-bfbc-8997-a741-01a1e925ebf4','ada','synapse-scripted-8181','local',-9105740622484704626,'01a1e925-ebf4-728e-899b-493c915425eb','','completed',1794912938996012,1794912938996012,10,0);
INSERT INTO "tasks" VALUES(14,-9105740622484359409,'9721d254-ca7d-8d64-b70f-01a1e925ebf9','ada','synapse-scripted-8181','local',-9105740622484376255,'01a1e925-ebf9-7541-b9ef-f9e55843c7a9','','completed',1794912939001383,1794912939001383,4,0);
INSERT INTO "tasks" VALUES(17,-9105740622484237477,'626b7fc4-ab22-8339-935b-01a1e925ebfb','ada','synapse-scripted-8181','local',-9105740622484245313,'01a1e925-ebfb-74bf-8e67-a03095812a31','','failed',1794912939003555,1794912939003555,3,0);
INSERT INTO "tasks" VALUES(20,-9105740622484033907,'b6e3cad4-901f-89b2-ae8d-01a1e925ebfe','ada','synapse-scripted-8181','local',-9105740622484049885,'01a1e925-ebfe-7023-b067-d5f1a99bcfa2','','rejected',1794912939006337,1794912939006337,3,0);
INSERT INTO "tasks" VALUES(24,-9105740622483900207,'a0f4d3a5-faa3-8b7b-b8d1-01a1e925ec00','ada','synapse-scripted-8181','local',-9105740622483915036,'01a1e925-ec00-7ee4-8b9c-7025488359f3','','completed',1794912939008057,1794912939008057,4,0);
INSERT INTO "tasks" VALUES(25,-9105740622483513284,'c9366be5-d89b-80a1-a03c-01a1e925ec06','ada','synapse-scripted-8181','local',-9105740622483523156,'01a1e925-ec06-79ac-9821-2296f659e876','','canceled',1794912939014185,1794912939017591,9,0);
INSERT INTO "tasks" VALUES(34,-9105740622483178398,'e4c6b0eb-5ddc-803d-bc62-01a1e925ec0b','ada','synapse-scripted-8181','local',-9105740622483195109,'01a1e925-ec0b-7b1b-9b48-f6ff649374f6','','completed',1794912939019382,1794912939024601,16,0);
INSERT INTO "tasks" VALUES(50,-9105740622482720940,'06317e85-6727-8ca5-b754-01a1e925ec12','ada','synapse-scripted-8181','local',-9105740622482736546,'01a1e925-ec12-7a5e-96bd-5a6130aa6ca4','','input_required',1794912939026391,1794912939027335,7,0);
INSERT INTO "tasks" VALUES(57,-9105740622482464249,'4207ab46-9d44-8373-a207-01a1e925ec16','ada','synapse-scripted-8181','local',-9105740622482474761,'01a1e925-ec16-78f7-887d-5cf746c63921','','auth_required',1794912939030571,1794912939033656,7,0);
INSERT INTO "tasks" VALUES(67,-9105740622482005492,'32dfbb96-3a42-83c3-a20c-01a1e925ec1d','ada','synapse-scripted-8181','local',-9105740622482015600,'01a1e925-ec1d-7a90-943c-e14e306888ed','','completed',1794912939037028,1794912939037028,4,0);
INSERT INTO "tasks" VALUES(68,-9105740622481867988,'67c1105d-2cdc-8a38-bb2c-01a1e925ec1f','ada','synapse-scripted-8181','local',-9105740622481885754,'01a1e925-ec1f-75c6-ac8e-28e3f81838c0','','submitted',1794912939039046,1794912939039046,1,0);
INSERT INTO "tasks" VALUES(69,-9105740622481807817,'09d144de-d59d-83be-a637-01a1e925ec20','ada','synapse-scripted-8181','local',-9105740622481819006,'01a1e925-ec20-7a82-ad46-9ef430b1a410','','working',1794912939040609,1794912939041663,5,0);
INSERT INTO "tasks" VALUES(74,-9105740622481548155,'f044fbbe-6469-880d-9c85-01a1e925ec24','ada','synapse-scripted-8181','local',-9105740622481557011,'01a1e925-ec24-79ed-baf3-5e60ad66b30f','','submitted',1794912939044021,1794912939044021,1,0);
CREATE INDEX pushes_open ON pushes (inbox, number) WHERE is_open = 1;
CREATE INDEX deliveries_by_time ON deliveries (at);
CREATE UNIQUE INDEX appends_by_task ON appends (task, version);
CREATE INDEX appends_by_message ON appends (message_key) WHERE message_key IS NOT NULL;
CREATE INDEX tasks_by_inbox ON tasks (inbox, updated_at, number, hidden, scope, state);
CREATE INDEX tasks_by_change ON tasks (updated_at, number, hidden, scope, state);
CREATE INDEX tasks_by_context ON tasks (context_key);
CREATE INDEX tasks_by_agent ON tasks (agent_id, updated_at, number, hidden, scope, state);
CREATE INDEX tasks_by_parent ON tasks (parent_id) WHERE parent_id <> '';
CREATE INDEX tasks_open ON tasks (inbox, created_at)
WHERE state IN ('submitted', 'working', 'input_required', 'auth_required');
CREATE INDEX tasks_by_key ON tasks (id_key, id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('appends',74);
INSERT INTO "sqlite_sequence" VALUES('pushes',2);
COMMIT;
PRAGMA application_id = 1398361665;
PRAGMA user_version = 8;
