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
INSERT INTO "appends" VALUES(10,10,10,-3280072976497272011,'m-1','6372fd5524d71e42e9747aec547dee01','[["task_opened",1794804008860793,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e2a7-c79c-73e8-90c0-4833b2c63e53","message":{"message_id":"m-1","role":"user","parts":[{"text":"report"},{"data":{"n":[1.5,null,1000000000000000000000000000000,-0.0],"\u043a\u043b\u044e\u0447":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''","":{}},"metadata":{"x":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"}},{"url":"","bytes":"AAECAwQF/w==","name":"f.bin","media_type":"application/octet-stream"},{"url":"https://example.com/x","media_type":"text/html"}],"metadata":{"k":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"},"extensions":["https://example.com/e"]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["state_changed",1794804008860793,{"state":"working","note":"looking"}],["artifact_added",1794804008860793,{"artifact":{"artifact_id":"page","parts":[{"text":"# report","media_type":"text/markdown"}],"name":"page"},"append":false,"last_chunk":true}],["artifact_added",1794804008860793,{"artifact":{"artifact_id":"file","parts":[{"url":"","bytes":"YnkgaGFuZAo=","name":"a.txt","media_type":"text/plain"}],"name":"file"},"append":false,"last_chunk":true}],["artifact_added",1794804008860793,{"artifact":{"artifact_id":"facts","parts":[{"data":{"passed":12,"ratio":0.5}}],"name":"facts"},"append":false,"last_chunk":true}],["artifact_added",1794804008860793,{"artifact":{"artifact_id":"table","parts":[{"url":"","bytes":"YSxiCg==","name":"t.csv","media_type":"text/csv"}],"name":"table"},"append":false,"last_chunk":false}],["artifact_added",1794804008860793,{"artifact":{"artifact_id":"table","parts":[{"url":"","bytes":"MSwyCg==","name":"t.csv","media_type":"text/csv"}],"name":"table"},"append":true,"last_chunk":true}],["artifact_added",1794804008860793,{"artifact":{"artifact_id":"00306a5b-answer","parts":[{"text":"done"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794804008860793,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794804008860793,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(14,14,4,8996027584356553918,'m-2','cf48e91e7989361699692f9926b6f9ec','[["task_opened",1794804008864537,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e2a7-c7a0-74be-ab72-3e485e94648e","message":{"message_id":"m-2","role":"user","parts":[{"text":"日本語 \"quoted\" \\ \ud800 \u0000   ''single''"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["artifact_added",1794804008864537,{"artifact":{"artifact_id":"b02029ad-answer","parts":[{"text":"日本語 \"quoted\" \\ \ud800 \u0000   ''single''"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794804008864537,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794804008864537,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(17,17,3,-2183356525944939824,'m-3','d1209023fc303b89f41e28d269d32e2a','[["task_opened",1794804008869210,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e2a7-c7a5-75e7-9c66-e5b01065a3d5","message":{"message_id":"m-3","role":"user","parts":[{"text":"fail"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["receipt_changed",1794804008869210,{"step":"failed","source":"journal","evidence":"no credit"}],["state_changed",1794804008869210,{"state":"failed","reason":"quota","note":"no credit"}]]');
INSERT INTO "appends" VALUES(20,20,3,7781638337111184904,'m-4','d9905bea544c5ef458d4ab909121b55b','[["task_opened",1794804008871625,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e2a7-c7a7-7bbb-9bf5-8693b73b5fd1","message":{"message_id":"m-4","role":"user","parts":[{"text":"refuse"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["receipt_changed",1794804008871625,{"step":"failed","source":"journal","evidence":"not for me"}],["state_changed",1794804008871625,{"state":"rejected","reason":"rejected","note":"not for me"}]]');
INSERT INTO "appends" VALUES(24,24,4,-422799454064946657,'m-5','6864cf16f5dfffd5425d89d3e25a5417','[["task_opened",1794804008873798,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e2a7-c7a9-71c4-8245-d73235f4fcb2","message":{"message_id":"m-5","role":"user","parts":[{"text":"direct"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["artifact_added",1794804008873798,{"artifact":{"artifact_id":"4d509361-answer","parts":[{"text":"a plain message"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794804008873798,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794804008873798,{"state":"completed","reason":"direct_message"}]]');
INSERT INTO "appends" VALUES(25,25,1,1768835971110196169,'m-6','f022ef3212edfbcbf378e1074dcc5b40','[["task_opened",1794804008875844,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e2a7-c7ab-70d7-981b-cc60cc677249","message":{"message_id":"m-6","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(31,25,7,NULL,NULL,NULL,'[["receipt_changed",1794804008884189,{"step":"submitted","source":"script","evidence":"rule 2"}],["state_changed",1794804008884189,{"state":"working"}],["receipt_changed",1794804008884226,{"step":"turn_started","source":"script","evidence":"rule 2"}],["message_added",1794804008884262,{"message":{"message_id":"0a790759-a8b5-83c2-91af-01a1e2a7c7ab.2","role":"agent","parts":[{"text":"Which one?"}]}}],["receipt_changed",1794804008884262,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794804008884262,{"state":"input_required","note":"Which one?"}]]');
INSERT INTO "appends" VALUES(33,25,9,NULL,NULL,NULL,'[["receipt_changed",1794804008889112,{"step":"canceled","source":"journal","evidence":"canceled by request"}],["state_changed",1794804008889112,{"state":"canceled","reason":"canceled","note":"canceled by request"}]]');
INSERT INTO "appends" VALUES(34,34,1,3222706177794595013,'m-7','f022ef3212edfbcbf378e1074dcc5b40','[["task_opened",1794804008897670,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e2a7-c7c1-7e83-802b-27a23375b014","message":{"message_id":"m-7","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(40,34,7,NULL,NULL,NULL,'[["receipt_changed",1794804008903939,{"step":"submitted","source":"script","evidence":"rule 2"}],["state_changed",1794804008903939,{"state":"working"}],["receipt_changed",1794804008903972,{"step":"turn_started","source":"script","evidence":"rule 2"}],["message_added",1794804008904004,{"message":{"message_id":"9b547690-8bb3-87b2-a5a3-01a1e2a7c7c1.2","role":"agent","parts":[{"text":"Which one?"}]}}],["receipt_changed",1794804008904004,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794804008904004,{"state":"input_required","note":"Which one?"}]]');
INSERT INTO "appends" VALUES(43,34,10,-7692789412172540924,'m-8','7ceecd44031cc1f3c3cd3bb65c4bb70c','[["message_added",1794804008915571,{"message":{"message_id":"m-8","role":"user","parts":[{"text":"the first"}]}}],["receipt_changed",1794804008915571,{"step":"queued","source":"journal","evidence":""}],["state_changed",1794804008915571,{"state":"submitted"}]]');
INSERT INTO "appends" VALUES(49,34,16,NULL,NULL,NULL,'[["receipt_changed",1794804008920164,{"step":"submitted","source":"script","evidence":"the steps after the question"}],["state_changed",1794804008920164,{"state":"working"}],["receipt_changed",1794804008920208,{"step":"turn_started","source":"script","evidence":"the steps after the question"}],["artifact_added",1794804008920247,{"artifact":{"artifact_id":"9b547690-answer","parts":[{"text":"you chose the first"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794804008920247,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794804008920247,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(50,50,1,2693945237503532666,'m-9','f022ef3212edfbcbf378e1074dcc5b40','[["task_opened",1794804008937373,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e2a7-c7e9-7242-b685-74ebfb7a0233","message":{"message_id":"m-9","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(56,50,7,NULL,NULL,NULL,'[["receipt_changed",1794804008947894,{"step":"submitted","source":"script","evidence":"rule 2"}],["state_changed",1794804008947894,{"state":"working"}],["receipt_changed",1794804008947929,{"step":"turn_started","source":"script","evidence":"rule 2"}],["message_added",1794804008947963,{"message":{"message_id":"4ad69d37-e182-8296-b166-01a1e2a7c7e9.2","role":"agent","parts":[{"text":"Which one?"}]}}],["receipt_changed",1794804008947963,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794804008947963,{"state":"input_required","note":"Which one?"}]]');
INSERT INTO "appends" VALUES(57,57,1,-3233419421198612429,'m-10','def22e4c98922beda81481ef65b22a85','[["task_opened",1794804008965703,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e2a7-c805-7434-9936-93d50fba6164","message":{"message_id":"m-10","role":"user","parts":[{"text":"log in"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(63,57,7,NULL,NULL,NULL,'[["receipt_changed",1794804008973939,{"step":"submitted","source":"script","evidence":"rule 3"}],["state_changed",1794804008973939,{"state":"working"}],["receipt_changed",1794804008973974,{"step":"turn_started","source":"script","evidence":"rule 3"}],["message_added",1794804008974010,{"message":{"message_id":"2a68733f-05de-8868-93e3-01a1e2a7c805.2","role":"agent","parts":[{"text":"Show your token."}]}}],["receipt_changed",1794804008974010,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794804008974010,{"state":"auth_required","note":"Show your token."}]]');
INSERT INTO "appends" VALUES(67,67,4,-202660547671470470,'m-11','d5ab741d54ced0c1bc815713c2aeda6f','[["task_opened",1794804008987314,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v0_3","context_id":"01a1e2a7-c81b-7c85-b252-293b6646d415","message":{"message_id":"m-11","role":"user","parts":[{"text":"by 0.3"}]},"metadata":{"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["artifact_added",1794804008987314,{"artifact":{"artifact_id":"b32ebec9-answer","parts":[{"text":"by 0.3"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794804008987314,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794804008987314,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(68,68,1,NULL,NULL,NULL,'[["task_opened",1794804008997136,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"synapse","context_id":"01a1e2a7-c825-7436-bf1f-2c8d867770cc","message":{"message_id":"f716d7ba-c569-4960-87be-acf50a2d4201","role":"user","parts":[{"text":"wait for a reply"}]},"metadata":{"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false},"queued":false}]]');
INSERT INTO "appends" VALUES(69,69,1,-636833086710317260,'m-12','5d5f2ef502243519f3d24a7708247c6d','[["task_opened",1794804009004941,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e2a7-c82c-7db1-9cdc-e10eb1d7574e","message":{"message_id":"m-12","role":"user","parts":[{"text":"wait"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(73,69,5,NULL,NULL,NULL,'[["receipt_changed",1794804009010516,{"step":"submitted","source":"script","evidence":"rule 7"}],["state_changed",1794804009010516,{"state":"working"}],["receipt_changed",1794804009010549,{"step":"turn_started","source":"script","evidence":"rule 7"}],["state_changed",1794804009010573,{"state":"working","note":"working on it"}]]');
INSERT INTO "appends" VALUES(74,74,1,5498124715366556487,'m-13','325614728568122c1888c3a1d654fe45','[["task_opened",1794804009076274,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e2a7-c874-72f5-a966-7d88624e791b","message":{"message_id":"m-13","role":"user","parts":[{"text":"behind it"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
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
    held_by TEXT NOT NULL
, epoch INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
INSERT INTO "inboxes" VALUES('ada','32319:1761195',1);
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
INSERT INTO "pushes" VALUES(1,'4ad69d37-e182-8296-b166-01a1e2a7c7e9','p-1','ada',56,1,'{"url":"http://127.0.0.1:9/hook","token":"t","scheme":"","credentials":"","dialect":"a2a_v1","set_by":""}');
INSERT INTO "pushes" VALUES(2,'2a68733f-05de-8868-93e3-01a1e2a7c805','p-1','ada',63,1,'{"url":"http://127.0.0.1:9/hook","token":"t","scheme":"","credentials":"","dialect":"a2a_v1","set_by":""}');
CREATE TABLE snapshots (
    number INTEGER PRIMARY KEY, -- of the task
    version INTEGER NOT NULL,
    body TEXT NOT NULL
);
INSERT INTO "snapshots" VALUES(25,9,'{"id":"0a790759-a8b5-83c2-91af-01a1e2a7c7ab","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"01a1e2a7-c7ab-70d7-981b-cc60cc677249","scope":"local","dialect":"a2a_v1","state":"canceled","created_at":1794804008875844,"updated_at":1794804008889112,"version":9,"priority":3,"queued":true,"hidden":false,"receipts":[["queued",1794804008875844,"journal",""],["submitted",1794804008884189,"script","rule 2"],["turn_started",1794804008884226,"script","rule 2"],["answered",1794804008884262,"driver","the agent asked for input"],["canceled",1794804008889112,"journal","canceled by request"]],"history":[{"message_id":"m-6","role":"user","parts":[{"text":"ask me"}]},{"message_id":"0a790759-a8b5-83c2-91af-01a1e2a7c7ab.2","role":"agent","parts":[{"text":"Which one?"}]}],"artifacts":[],"reason":"canceled","note":"canceled by request","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(34,16,'{"id":"9b547690-8bb3-87b2-a5a3-01a1e2a7c7c1","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"01a1e2a7-c7c1-7e83-802b-27a23375b014","scope":"local","dialect":"a2a_v1","state":"completed","created_at":1794804008897670,"updated_at":1794804008920247,"version":16,"priority":3,"queued":true,"hidden":false,"receipts":[["queued",1794804008897670,"journal",""],["submitted",1794804008903939,"script","rule 2"],["turn_started",1794804008903972,"script","rule 2"],["answered",1794804008904004,"driver","the agent asked for input"],["queued",1794804008915571,"journal",""],["submitted",1794804008920164,"script","the steps after the question"],["turn_started",1794804008920208,"script","the steps after the question"],["answered",1794804008920247,"script","the turn ended"]],"history":[{"message_id":"m-7","role":"user","parts":[{"text":"ask me"}]},{"message_id":"9b547690-8bb3-87b2-a5a3-01a1e2a7c7c1.2","role":"agent","parts":[{"text":"Which one?"}]},{"message_id":"m-8","role":"user","parts":[{"text":"the first"}]}],"artifacts":[{"artifact_id":"9b547690-answer","parts":[{"text":"you chose the first"}],"name":"answer","metadata":{"source":"script","inferred":false}}],"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(50,7,'{"id":"4ad69d37-e182-8296-b166-01a1e2a7c7e9","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"01a1e2a7-c7e9-7242-b685-74ebfb7a0233","scope":"local","dialect":"a2a_v1","state":"input_required","created_at":1794804008937373,"updated_at":1794804008947963,"version":7,"priority":3,"queued":true,"hidden":false,"receipts":[["queued",1794804008937373,"journal",""],["submitted",1794804008947894,"script","rule 2"],["turn_started",1794804008947929,"script","rule 2"],["answered",1794804008947963,"driver","the agent asked for input"]],"history":[{"message_id":"m-9","role":"user","parts":[{"text":"ask me"}]},{"message_id":"4ad69d37-e182-8296-b166-01a1e2a7c7e9.2","role":"agent","parts":[{"text":"Which one?"}]}],"artifacts":[],"note":"Which one?","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(57,7,'{"id":"2a68733f-05de-8868-93e3-01a1e2a7c805","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"01a1e2a7-c805-7434-9936-93d50fba6164","scope":"local","dialect":"a2a_v1","state":"auth_required","created_at":1794804008965703,"updated_at":1794804008974010,"version":7,"priority":3,"queued":true,"hidden":false,"receipts":[["queued",1794804008965703,"journal",""],["submitted",1794804008973939,"script","rule 3"],["turn_started",1794804008973974,"script","rule 3"],["answered",1794804008974010,"driver","the agent asked for input"]],"history":[{"message_id":"m-10","role":"user","parts":[{"text":"log in"}]},{"message_id":"2a68733f-05de-8868-93e3-01a1e2a7c805.2","role":"agent","parts":[{"text":"Show your token."}]}],"artifacts":[],"note":"Show your token.","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
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
INSERT INTO "tasks" VALUES(10,-9105747761330081107,'00306a5b-12c1-8784-b2ad-01a1e2a7c79c','ada','synapse-scripted-8180','local',-9105747761330097176,'01a1e2a7-c79c-73e8-90c0-4833b2c63e53','','completed',1794804008860793,1794804008860793,10,0);
INSERT INTO "tasks" VALUES(14,-9105747761329831401,'b02029ad-4066-8a7f-8217-01a1e2a7c7a0','ada','synapse-scripted-8180','local',-9105747761329834818,'01a1e2a7-c7a0-74be-ab72-3e485e94648e','','completed',1794804008864537,1794804008864537,4,0);
INSERT INTO "tasks" VALUES(17,-9105747761329503696,'69a99657-5605-8bf7-8230-01a1e2a7c7a5','ada','synapse-scripted-8180','local',-9105747761329506841,'01a1e2a7-c7a5-75e7-9c66-e5b01065a3d5','','failed',1794804008869210,1794804008869210,3,0);
INSERT INTO "tasks" VALUES(20,-9105747761329363558,'e9e6bc00-cbce-8d2a-a59a-01a1e2a7c7a7','ada','synapse-scripted-8180','local',-9105747761329374277,'01a1e2a7-c7a7-7bbb-9bf5-8693b73b5fd1','','rejected',1794804008871625,1794804008871625,3,0);
INSERT INTO "tasks" VALUES(24,-9105747761329226485,'4d509361-e253-8436-bd0b-01a1e2a7c7a9','ada','synapse-scripted-8180','local',-9105747761329245756,'01a1e2a7-c7a9-71c4-8245-d73235f4fcb2','','completed',1794804008873798,1794804008873798,4,0);
INSERT INTO "tasks" VALUES(25,-9105747761329106513,'0a790759-a8b5-83c2-91af-01a1e2a7c7ab','ada','synapse-scripted-8180','local',-9105747761329114921,'01a1e2a7-c7ab-70d7-981b-cc60cc677249','','canceled',1794804008875844,1794804008889112,9,0);
INSERT INTO "tasks" VALUES(34,-9105747761327659613,'9b547690-8bb3-87b2-a5a3-01a1e2a7c7c1','ada','synapse-scripted-8180','local',-9105747761327669629,'01a1e2a7-c7c1-7e83-802b-27a23375b014','','completed',1794804008897670,1794804008920247,16,0);
INSERT INTO "tasks" VALUES(50,-9105747761325035162,'4ad69d37-e182-8296-b166-01a1e2a7c7e9','ada','synapse-scripted-8180','local',-9105747761325051326,'01a1e2a7-c7e9-7242-b685-74ebfb7a0233','','input_required',1794804008937373,1794804008947963,7,0);
INSERT INTO "tasks" VALUES(57,-9105747761323207709,'2a68733f-05de-8868-93e3-01a1e2a7c805','ada','synapse-scripted-8180','local',-9105747761323215820,'01a1e2a7-c805-7434-9936-93d50fba6164','','auth_required',1794804008965703,1794804008974010,7,0);
INSERT INTO "tasks" VALUES(67,-9105747761321768550,'b32ebec9-2fff-8423-899a-01a1e2a7c81b','ada','synapse-scripted-8180','local',-9105747761321771899,'01a1e2a7-c81b-7c85-b252-293b6646d415','','completed',1794804008987314,1794804008987314,4,0);
INSERT INTO "tasks" VALUES(68,-9105747761321102071,'f12b5bd4-fbd5-8a69-b509-01a1e2a7c825','ada','synapse-scripted-8180','local',-9105747761321118666,'01a1e2a7-c825-7436-bf1f-2c8d867770cc','','submitted',1794804008997136,1794804008997136,1,0);
INSERT INTO "tasks" VALUES(69,-9105747761320643541,'8e9c34f9-d792-8b64-b42b-01a1e2a7c82c','ada','synapse-scripted-8180','local',-9105747761320657487,'01a1e2a7-c82c-7db1-9cdc-e10eb1d7574e','','working',1794804009004941,1794804009010573,5,0);
INSERT INTO "tasks" VALUES(74,-9105747761315930074,'8c3bba17-3ecd-8ff5-a026-01a1e2a7c874','ada','synapse-scripted-8180','local',-9105747761315941643,'01a1e2a7-c874-72f5-a966-7d88624e791b','','submitted',1794804009076274,1794804009076274,1,0);
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
PRAGMA user_version = 7;
