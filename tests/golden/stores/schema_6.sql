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
INSERT INTO "appends" VALUES(10,10,10,-3280072976497272011,'m-1','6372fd5524d71e42e9747aec547dee01','[["task_opened",1794800335186792,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-b952-7234-a297-2bdb2c47a39c","message":{"message_id":"m-1","role":"user","parts":[{"text":"report"},{"data":{"n":[1.5,null,1000000000000000000000000000000,-0.0],"\u043a\u043b\u044e\u0447":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''","":{}},"metadata":{"x":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"}},{"url":"","bytes":"AAECAwQF/w==","name":"f.bin","media_type":"application/octet-stream"},{"url":"https://example.com/x","media_type":"text/html"}],"metadata":{"k":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"},"extensions":["https://example.com/e"]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["state_changed",1794800335186792,{"state":"working","note":"looking"}],["artifact_added",1794800335186792,{"artifact":{"artifact_id":"page","parts":[{"text":"# report","media_type":"text/markdown"}],"name":"page"},"append":false,"last_chunk":true}],["artifact_added",1794800335186792,{"artifact":{"artifact_id":"file","parts":[{"url":"","bytes":"YnkgaGFuZAo=","name":"a.txt","media_type":"text/plain"}],"name":"file"},"append":false,"last_chunk":true}],["artifact_added",1794800335186792,{"artifact":{"artifact_id":"facts","parts":[{"data":{"passed":12,"ratio":0.5}}],"name":"facts"},"append":false,"last_chunk":true}],["artifact_added",1794800335186792,{"artifact":{"artifact_id":"table","parts":[{"url":"","bytes":"YSxiCg==","name":"t.csv","media_type":"text/csv"}],"name":"table"},"append":false,"last_chunk":false}],["artifact_added",1794800335186792,{"artifact":{"artifact_id":"table","parts":[{"url":"","bytes":"MSwyCg==","name":"t.csv","media_type":"text/csv"}],"name":"table"},"append":true,"last_chunk":true}],["artifact_added",1794800335186792,{"artifact":{"artifact_id":"bd23ed71-answer","parts":[{"text":"done"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794800335186792,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794800335186792,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(14,14,4,8996027584356553918,'m-2','cf48e91e7989361699692f9926b6f9ec','[["task_opened",1794800335205467,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-b965-7732-bcfa-33d00fbcb073","message":{"message_id":"m-2","role":"user","parts":[{"text":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["artifact_added",1794800335205467,{"artifact":{"artifact_id":"f8972bdc-answer","parts":[{"text":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794800335205467,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794800335205467,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(17,17,3,-2183356525944939824,'m-3','d1209023fc303b89f41e28d269d32e2a','[["task_opened",1794800335225410,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-b979-70fe-ad61-fb5a3725e8ef","message":{"message_id":"m-3","role":"user","parts":[{"text":"fail"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["receipt_changed",1794800335225410,{"step":"failed","source":"journal","evidence":"no credit"}],["state_changed",1794800335225410,{"state":"failed","reason":"quota","note":"no credit"}]]');
INSERT INTO "appends" VALUES(20,20,3,7781638337111184904,'m-4','d9905bea544c5ef458d4ab909121b55b','[["task_opened",1794800335235055,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-b983-768d-bd9b-9f470b2b08d8","message":{"message_id":"m-4","role":"user","parts":[{"text":"refuse"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["receipt_changed",1794800335235055,{"step":"failed","source":"journal","evidence":"not for me"}],["state_changed",1794800335235055,{"state":"rejected","reason":"rejected","note":"not for me"}]]');
INSERT INTO "appends" VALUES(24,24,4,-422799454064946657,'m-5','6864cf16f5dfffd5425d89d3e25a5417','[["task_opened",1794800335240802,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-b988-7426-9b84-1dcf207d89da","message":{"message_id":"m-5","role":"user","parts":[{"text":"direct"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["artifact_added",1794800335240802,{"artifact":{"artifact_id":"265b99fe-answer","parts":[{"text":"a plain message"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794800335240802,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794800335240802,{"state":"completed","reason":"direct_message"}]]');
INSERT INTO "appends" VALUES(25,25,1,1768835971110196169,'m-6','f022ef3212edfbcbf378e1074dcc5b40','[["task_opened",1794800335242499,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-b98a-7fcc-a3d8-f42cc1deb62a","message":{"message_id":"m-6","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(31,25,7,NULL,NULL,NULL,'[["receipt_changed",1794800335243664,{"step":"submitted","source":"script","evidence":"rule 2"}],["state_changed",1794800335243664,{"state":"working"}],["receipt_changed",1794800335243692,{"step":"turn_started","source":"script","evidence":"rule 2"}],["message_added",1794800335243721,{"message":{"message_id":"b216ff68-c43a-822b-b8fb-01a1e26fb98a.2","role":"agent","parts":[{"text":"Which one?"}]}}],["receipt_changed",1794800335243721,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794800335243721,{"state":"input_required","note":"Which one?"}]]');
INSERT INTO "appends" VALUES(33,25,9,NULL,NULL,NULL,'[["receipt_changed",1794800335245442,{"step":"canceled","source":"journal","evidence":"canceled by request"}],["state_changed",1794800335245442,{"state":"canceled","reason":"canceled","note":"canceled by request"}]]');
INSERT INTO "appends" VALUES(34,34,1,3222706177794595013,'m-7','f022ef3212edfbcbf378e1074dcc5b40','[["task_opened",1794800335246985,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-b98e-775b-a349-8c51569099c5","message":{"message_id":"m-7","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(40,34,7,NULL,NULL,NULL,'[["receipt_changed",1794800335247732,{"step":"submitted","source":"script","evidence":"rule 2"}],["state_changed",1794800335247732,{"state":"working"}],["receipt_changed",1794800335247774,{"step":"turn_started","source":"script","evidence":"rule 2"}],["message_added",1794800335247798,{"message":{"message_id":"baab1c87-df01-80b9-af50-01a1e26fb98e.2","role":"agent","parts":[{"text":"Which one?"}]}}],["receipt_changed",1794800335247798,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794800335247798,{"state":"input_required","note":"Which one?"}]]');
INSERT INTO "appends" VALUES(43,34,10,-7692789412172540924,'m-8','7ceecd44031cc1f3c3cd3bb65c4bb70c','[["message_added",1794800335249658,{"message":{"message_id":"m-8","role":"user","parts":[{"text":"the first"}]}}],["receipt_changed",1794800335249658,{"step":"queued","source":"journal","evidence":""}],["state_changed",1794800335249658,{"state":"submitted"}]]');
INSERT INTO "appends" VALUES(49,34,16,NULL,NULL,NULL,'[["receipt_changed",1794800335255828,{"step":"submitted","source":"script","evidence":"the steps after the question"}],["state_changed",1794800335255828,{"state":"working"}],["receipt_changed",1794800335255862,{"step":"turn_started","source":"script","evidence":"the steps after the question"}],["artifact_added",1794800335255895,{"artifact":{"artifact_id":"baab1c87-answer","parts":[{"text":"you chose the first"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794800335255895,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794800335255895,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(50,50,1,2693945237503532666,'m-9','f022ef3212edfbcbf378e1074dcc5b40','[["task_opened",1794800335267912,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-b9a3-7478-b4c1-9c8f1bab85df","message":{"message_id":"m-9","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(56,50,7,NULL,NULL,NULL,'[["receipt_changed",1794800335276917,{"step":"submitted","source":"script","evidence":"rule 2"}],["state_changed",1794800335276917,{"state":"working"}],["receipt_changed",1794800335276949,{"step":"turn_started","source":"script","evidence":"rule 2"}],["message_added",1794800335276980,{"message":{"message_id":"4a2c99dc-0dc5-8e23-926d-01a1e26fb9a3.2","role":"agent","parts":[{"text":"Which one?"}]}}],["receipt_changed",1794800335276980,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794800335276980,{"state":"input_required","note":"Which one?"}]]');
INSERT INTO "appends" VALUES(57,57,1,-3233419421198612429,'m-10','def22e4c98922beda81481ef65b22a85','[["task_opened",1794800335288468,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-b9b8-7cd5-9ae7-9084a46e7649","message":{"message_id":"m-10","role":"user","parts":[{"text":"log in"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(63,57,7,NULL,NULL,NULL,'[["receipt_changed",1794800335291833,{"step":"submitted","source":"script","evidence":"rule 3"}],["state_changed",1794800335291833,{"state":"working"}],["receipt_changed",1794800335291863,{"step":"turn_started","source":"script","evidence":"rule 3"}],["message_added",1794800335291900,{"message":{"message_id":"6f4140d6-1328-8ec2-98a8-01a1e26fb9b8.2","role":"agent","parts":[{"text":"Show your token."}]}}],["receipt_changed",1794800335291900,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794800335291900,{"state":"auth_required","note":"Show your token."}]]');
INSERT INTO "appends" VALUES(67,67,4,-202660547671470470,'m-11','d5ab741d54ced0c1bc815713c2aeda6f','[["task_opened",1794800335300889,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v0_3","context_id":"01a1e26f-b9c4-7251-b63b-9d026240ae7b","message":{"message_id":"m-11","role":"user","parts":[{"text":"by 0.3"}]},"metadata":{"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["artifact_added",1794800335300889,{"artifact":{"artifact_id":"62bec9b5-answer","parts":[{"text":"by 0.3"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794800335300889,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794800335300889,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(68,68,1,NULL,NULL,NULL,'[["task_opened",1794800335303722,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"synapse","context_id":"01a1e26f-b9c7-7687-8e2c-f01a16de4aa1","message":{"message_id":"32eda112-7206-45e9-b2a7-036dd1dc68ad","role":"user","parts":[{"text":"wait for a reply"}]},"metadata":{"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false},"queued":false}]]');
INSERT INTO "appends" VALUES(69,69,1,-636833086710317260,'m-12','5d5f2ef502243519f3d24a7708247c6d','[["task_opened",1794800335305314,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-b9c9-7b5a-98a1-a1d1254234a5","message":{"message_id":"m-12","role":"user","parts":[{"text":"wait"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(73,69,5,NULL,NULL,NULL,'[["receipt_changed",1794800335306242,{"step":"submitted","source":"script","evidence":"rule 7"}],["state_changed",1794800335306242,{"state":"working"}],["receipt_changed",1794800335306267,{"step":"turn_started","source":"script","evidence":"rule 7"}],["state_changed",1794800335306289,{"state":"working","note":"working on it"}]]');
INSERT INTO "appends" VALUES(74,74,1,5498124715366556487,'m-13','325614728568122c1888c3a1d654fe45','[["task_opened",1794800335308709,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-b9cc-7189-8876-c0714e0cdf9b","message":{"message_id":"m-13","role":"user","parts":[{"text":"behind it"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
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
INSERT INTO "inboxes" VALUES('ada','17967:1393931');
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
INSERT INTO "pushes" VALUES(1,'4a2c99dc-0dc5-8e23-926d-01a1e26fb9a3','p-1','ada',56,1,'{"url":"http://127.0.0.1:9/hook","token":"t","scheme":"","credentials":"","dialect":"a2a_v1","set_by":""}');
INSERT INTO "pushes" VALUES(2,'6f4140d6-1328-8ec2-98a8-01a1e26fb9b8','p-1','ada',63,1,'{"url":"http://127.0.0.1:9/hook","token":"t","scheme":"","credentials":"","dialect":"a2a_v1","set_by":""}');
CREATE TABLE snapshots (
    number INTEGER PRIMARY KEY, -- of the task
    version INTEGER NOT NULL,
    body TEXT NOT NULL
);
INSERT INTO "snapshots" VALUES(25,9,'{"id":"b216ff68-c43a-822b-b8fb-01a1e26fb98a","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"01a1e26f-b98a-7fcc-a3d8-f42cc1deb62a","scope":"local","dialect":"a2a_v1","state":"canceled","created_at":1794800335242499,"updated_at":1794800335245442,"version":9,"priority":3,"queued":true,"hidden":false,"deadline":null,"boot_deadline":null,"receipts":[["queued",1794800335242499,"journal",""],["submitted",1794800335243664,"script","rule 2"],["turn_started",1794800335243692,"script","rule 2"],["answered",1794800335243721,"driver","the agent asked for input"],["canceled",1794800335245442,"journal","canceled by request"]],"history":[{"message_id":"m-6","role":"user","parts":[{"text":"ask me"}]},{"message_id":"b216ff68-c43a-822b-b8fb-01a1e26fb98a.2","role":"agent","parts":[{"text":"Which one?"}]}],"artifacts":[],"reason":"canceled","note":"canceled by request","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(34,16,'{"id":"baab1c87-df01-80b9-af50-01a1e26fb98e","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"01a1e26f-b98e-775b-a349-8c51569099c5","scope":"local","dialect":"a2a_v1","state":"completed","created_at":1794800335246985,"updated_at":1794800335255895,"version":16,"priority":3,"queued":true,"hidden":false,"deadline":null,"boot_deadline":null,"receipts":[["queued",1794800335246985,"journal",""],["submitted",1794800335247732,"script","rule 2"],["turn_started",1794800335247774,"script","rule 2"],["answered",1794800335247798,"driver","the agent asked for input"],["queued",1794800335249658,"journal",""],["submitted",1794800335255828,"script","the steps after the question"],["turn_started",1794800335255862,"script","the steps after the question"],["answered",1794800335255895,"script","the turn ended"]],"history":[{"message_id":"m-7","role":"user","parts":[{"text":"ask me"}]},{"message_id":"baab1c87-df01-80b9-af50-01a1e26fb98e.2","role":"agent","parts":[{"text":"Which one?"}]},{"message_id":"m-8","role":"user","parts":[{"text":"the first"}]}],"artifacts":[{"artifact_id":"baab1c87-answer","parts":[{"text":"you chose the first"}],"name":"answer","metadata":{"source":"script","inferred":false}}],"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(50,7,'{"id":"4a2c99dc-0dc5-8e23-926d-01a1e26fb9a3","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"01a1e26f-b9a3-7478-b4c1-9c8f1bab85df","scope":"local","dialect":"a2a_v1","state":"input_required","created_at":1794800335267912,"updated_at":1794800335276980,"version":7,"priority":3,"queued":true,"hidden":false,"deadline":null,"boot_deadline":null,"receipts":[["queued",1794800335267912,"journal",""],["submitted",1794800335276917,"script","rule 2"],["turn_started",1794800335276949,"script","rule 2"],["answered",1794800335276980,"driver","the agent asked for input"]],"history":[{"message_id":"m-9","role":"user","parts":[{"text":"ask me"}]},{"message_id":"4a2c99dc-0dc5-8e23-926d-01a1e26fb9a3.2","role":"agent","parts":[{"text":"Which one?"}]}],"artifacts":[],"note":"Which one?","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(57,7,'{"id":"6f4140d6-1328-8ec2-98a8-01a1e26fb9b8","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"01a1e26f-b9b8-7cd5-9ae7-9084a46e7649","scope":"local","dialect":"a2a_v1","state":"auth_required","created_at":1794800335288468,"updated_at":1794800335291900,"version":7,"priority":3,"queued":true,"hidden":false,"deadline":null,"boot_deadline":null,"receipts":[["queued",1794800335288468,"journal",""],["submitted",1794800335291833,"script","rule 3"],["turn_started",1794800335291863,"script","rule 3"],["answered",1794800335291900,"driver","the agent asked for input"]],"history":[{"message_id":"m-10","role":"user","parts":[{"text":"log in"}]},{"message_id":"6f4140d6-1328-8ec2-98a8-01a1e26fb9b8.2","role":"agent","parts":[{"text":"Show your token."}]}],"artifacts":[],"note":"Show your token.","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
CREATE TABLE stored_bytes (
    inbox TEXT NOT NULL,
    scope TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (inbox, scope)
) WITHOUT ROWID;
INSERT INTO "stored_bytes" VALUES('ada','local',12347);
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
INSERT INTO "tasks" VALUES(10,-9105748002087981934,'bd23ed71-5efe-809b-ac92-01a1e26fb952','ada','synapse-scripted-8180','local',-9105748002087996876,'01a1e26f-b952-7234-a297-2bdb2c47a39c','','completed',1794800335186792,1794800335186792,10,0);
INSERT INTO "tasks" VALUES(14,-9105748002086732133,'f8972bdc-527f-870c-be9b-01a1e26fb965','ada','synapse-scripted-8180','local',-9105748002086750414,'01a1e26f-b965-7732-bcfa-33d00fbcb073','','completed',1794800335205467,1794800335205467,4,0);
INSERT INTO "tasks" VALUES(17,-9105748002085430793,'fb525b81-ce7b-85bd-99f7-01a1e26fb979','ada','synapse-scripted-8180','local',-9105748002085441282,'01a1e26f-b979-70fe-ad61-fb5a3725e8ef','','failed',1794800335225410,1794800335225410,3,0);
INSERT INTO "tasks" VALUES(20,-9105748002084771962,'1b4d9f22-00c1-8e32-a786-01a1e26fb983','ada','synapse-scripted-8180','local',-9105748002084784499,'01a1e26f-b983-768d-bd9b-9f470b2b08d8','','rejected',1794800335235055,1794800335235055,3,0);
INSERT INTO "tasks" VALUES(24,-9105748002084441498,'265b99fe-9969-81fd-b266-01a1e26fb988','ada','synapse-scripted-8180','local',-9105748002084457434,'01a1e26f-b988-7426-9b84-1dcf207d89da','','completed',1794800335240802,1794800335240802,4,0);
INSERT INTO "tasks" VALUES(25,-9105748002084308741,'b216ff68-c43a-822b-b8fb-01a1e26fb98a','ada','synapse-scripted-8180','local',-9105748002084323380,'01a1e26f-b98a-7fcc-a3d8-f42cc1deb62a','','canceled',1794800335242499,1794800335245442,9,0);
INSERT INTO "tasks" VALUES(34,-9105748002084049072,'baab1c87-df01-80b9-af50-01a1e26fb98e','ada','synapse-scripted-8180','local',-9105748002084063397,'01a1e26f-b98e-775b-a349-8c51569099c5','','completed',1794800335246985,1794800335255895,16,0);
INSERT INTO "tasks" VALUES(50,-9105748002082680211,'4a2c99dc-0dc5-8e23-926d-01a1e26fb9a3','ada','synapse-scripted-8180','local',-9105748002082687880,'01a1e26f-b9a3-7478-b4c1-9c8f1bab85df','','input_required',1794800335267912,1794800335276980,7,0);
INSERT INTO "tasks" VALUES(57,-9105748002081302360,'6f4140d6-1328-8ec2-98a8-01a1e26fb9b8','ada','synapse-scripted-8180','local',-9105748002081309483,'01a1e26f-b9b8-7cd5-9ae7-9084a46e7649','','auth_required',1794800335288468,1794800335291900,7,0);
INSERT INTO "tasks" VALUES(67,-9105748002080519464,'62bec9b5-9330-8bf9-8ad8-01a1e26fb9c4','ada','synapse-scripted-8180','local',-9105748002080525743,'01a1e26f-b9c4-7251-b63b-9d026240ae7b','','completed',1794800335300889,1794800335300889,4,0);
INSERT INTO "tasks" VALUES(68,-9105748002080321426,'b6c7b54f-418d-8149-906e-01a1e26fb9c7','ada','synapse-scripted-8180','local',-9105748002080328057,'01a1e26f-b9c7-7687-8e2c-f01a16de4aa1','','submitted',1794800335303722,1794800335303722,1,0);
INSERT INTO "tasks" VALUES(69,-9105748002080184841,'9e630a1b-d081-84d9-a5f7-01a1e26fb9c9','ada','synapse-scripted-8180','local',-9105748002080195750,'01a1e26f-b9c9-7b5a-98a1-a1d1254234a5','','working',1794800335305314,1794800335306289,5,0);
INSERT INTO "tasks" VALUES(74,-9105748002079988972,'cb871175-af08-8708-a314-01a1e26fb9cc','ada','synapse-scripted-8180','local',-9105748002080001655,'01a1e26f-b9cc-7189-8876-c0714e0cdf9b','','submitted',1794800335308709,1794800335308709,1,0);
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
PRAGMA user_version = 6;
