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
INSERT INTO "appends" VALUES(10,10,10,-3280072976497272011,'m-1','6372fd5524d71e42e9747aec547dee01','[["task_opened",1794800332656726,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-af70-7ae4-87fd-2393dbb8f80e","message":{"message_id":"m-1","role":"user","parts":[{"text":"report"},{"data":{"n":[1.5,null,1000000000000000000000000000000,-0.0],"\u043a\u043b\u044e\u0447":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''","":{}},"metadata":{"x":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"}},{"url":"","bytes":"AAECAwQF/w==","name":"f.bin","media_type":"application/octet-stream"},{"url":"https://example.com/x","media_type":"text/html"}],"metadata":{"k":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"},"extensions":["https://example.com/e"]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["state_changed",1794800332656726,{"state":"working","note":"looking"}],["artifact_added",1794800332656726,{"artifact":{"artifact_id":"page","parts":[{"text":"# report","media_type":"text/markdown"}],"name":"page"},"append":false,"last_chunk":true}],["artifact_added",1794800332656726,{"artifact":{"artifact_id":"file","parts":[{"url":"","bytes":"YnkgaGFuZAo=","name":"a.txt","media_type":"text/plain"}],"name":"file"},"append":false,"last_chunk":true}],["artifact_added",1794800332656726,{"artifact":{"artifact_id":"facts","parts":[{"data":{"passed":12,"ratio":0.5}}],"name":"facts"},"append":false,"last_chunk":true}],["artifact_added",1794800332656726,{"artifact":{"artifact_id":"table","parts":[{"url":"","bytes":"YSxiCg==","name":"t.csv","media_type":"text/csv"}],"name":"table"},"append":false,"last_chunk":false}],["artifact_added",1794800332656726,{"artifact":{"artifact_id":"table","parts":[{"url":"","bytes":"MSwyCg==","name":"t.csv","media_type":"text/csv"}],"name":"table"},"append":true,"last_chunk":true}],["artifact_added",1794800332656726,{"artifact":{"artifact_id":"d707f44a-answer","parts":[{"text":"done"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794800332656726,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794800332656726,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(14,14,4,8996027584356553918,'m-2','cf48e91e7989361699692f9926b6f9ec','[["task_opened",1794800332677218,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-af85-71ab-908a-f34ca92c4c9d","message":{"message_id":"m-2","role":"user","parts":[{"text":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["artifact_added",1794800332677218,{"artifact":{"artifact_id":"91b08436-answer","parts":[{"text":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794800332677218,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794800332677218,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(17,17,3,-2183356525944939824,'m-3','d1209023fc303b89f41e28d269d32e2a','[["task_opened",1794800332693424,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-af95-7ab8-93fd-3b52ea18ea6a","message":{"message_id":"m-3","role":"user","parts":[{"text":"fail"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["receipt_changed",1794800332693424,{"step":"failed","source":"journal","evidence":"no credit"}],["state_changed",1794800332693424,{"state":"failed","reason":"quota","note":"no credit"}]]');
INSERT INTO "appends" VALUES(20,20,3,7781638337111184904,'m-4','d9905bea544c5ef458d4ab909121b55b','[["task_opened",1794800332705984,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-afa1-7d04-b563-6a0eee0f93dc","message":{"message_id":"m-4","role":"user","parts":[{"text":"refuse"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["receipt_changed",1794800332705984,{"step":"failed","source":"journal","evidence":"not for me"}],["state_changed",1794800332705984,{"state":"rejected","reason":"rejected","note":"not for me"}]]');
INSERT INTO "appends" VALUES(24,24,4,-422799454064946657,'m-5','6864cf16f5dfffd5425d89d3e25a5417','[["task_opened",1794800332723452,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-afb3-751f-a84c-d8234b921c8c","message":{"message_id":"m-5","role":"user","parts":[{"text":"direct"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["artifact_added",1794800332723452,{"artifact":{"artifact_id":"5dd2c531-answer","parts":[{"text":"a plain message"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794800332723452,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794800332723452,{"state":"completed","reason":"direct_message"}]]');
INSERT INTO "appends" VALUES(25,25,1,1768835971110196169,'m-6','f022ef3212edfbcbf378e1074dcc5b40','[["task_opened",1794800332729177,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-afb9-74bd-8e0b-81bafa34eefb","message":{"message_id":"m-6","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(31,25,7,NULL,NULL,NULL,'[["receipt_changed",1794800332740049,{"step":"submitted","source":"script","evidence":"rule 2"}],["state_changed",1794800332740049,{"state":"working"}],["receipt_changed",1794800332740085,{"step":"turn_started","source":"script","evidence":"rule 2"}],["message_added",1794800332740120,{"message":{"message_id":"c74c8a67-daac-8b78-8404-01a1e26fafb9.2","role":"agent","parts":[{"text":"Which one?"}]}}],["receipt_changed",1794800332740120,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794800332740120,{"state":"input_required","note":"Which one?"}]]');
INSERT INTO "appends" VALUES(33,25,9,NULL,NULL,NULL,'[["receipt_changed",1794800332761007,{"step":"canceled","source":"journal","evidence":"canceled by request"}],["state_changed",1794800332761007,{"state":"canceled","reason":"canceled","note":"canceled by request"}]]');
INSERT INTO "appends" VALUES(34,34,1,3222706177794595013,'m-7','f022ef3212edfbcbf378e1074dcc5b40','[["task_opened",1794800332768820,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-afe0-77be-a138-eb2d6a0bc71d","message":{"message_id":"m-7","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(40,34,7,NULL,NULL,NULL,'[["receipt_changed",1794800332779841,{"step":"submitted","source":"script","evidence":"rule 2"}],["state_changed",1794800332779841,{"state":"working"}],["receipt_changed",1794800332779873,{"step":"turn_started","source":"script","evidence":"rule 2"}],["message_added",1794800332779907,{"message":{"message_id":"5879d3c8-8eba-8942-8be3-01a1e26fafe0.2","role":"agent","parts":[{"text":"Which one?"}]}}],["receipt_changed",1794800332779907,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794800332779907,{"state":"input_required","note":"Which one?"}]]');
INSERT INTO "appends" VALUES(43,34,10,-7692789412172540924,'m-8','7ceecd44031cc1f3c3cd3bb65c4bb70c','[["message_added",1794800332791671,{"message":{"message_id":"m-8","role":"user","parts":[{"text":"the first"}]}}],["receipt_changed",1794800332791671,{"step":"queued","source":"journal","evidence":""}],["state_changed",1794800332791671,{"state":"submitted"}]]');
INSERT INTO "appends" VALUES(49,34,16,NULL,NULL,NULL,'[["receipt_changed",1794800332803822,{"step":"submitted","source":"script","evidence":"the steps after the question"}],["state_changed",1794800332803822,{"state":"working"}],["receipt_changed",1794800332803858,{"step":"turn_started","source":"script","evidence":"the steps after the question"}],["artifact_added",1794800332803889,{"artifact":{"artifact_id":"5879d3c8-answer","parts":[{"text":"you chose the first"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794800332803889,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794800332803889,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(50,50,1,2693945237503532666,'m-9','f022ef3212edfbcbf378e1074dcc5b40','[["task_opened",1794800332813212,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-b00d-7723-ac73-65d7a1cf29d9","message":{"message_id":"m-9","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(56,50,7,NULL,NULL,NULL,'[["receipt_changed",1794800332827812,{"step":"submitted","source":"script","evidence":"rule 2"}],["state_changed",1794800332827812,{"state":"working"}],["receipt_changed",1794800332827844,{"step":"turn_started","source":"script","evidence":"rule 2"}],["message_added",1794800332827876,{"message":{"message_id":"972e3fb4-0bec-815c-a6f3-01a1e26fb00d.2","role":"agent","parts":[{"text":"Which one?"}]}}],["receipt_changed",1794800332827876,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794800332827876,{"state":"input_required","note":"Which one?"}]]');
INSERT INTO "appends" VALUES(57,57,1,-3233419421198612429,'m-10','def22e4c98922beda81481ef65b22a85','[["task_opened",1794800332860759,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-b03c-73c8-8e7b-339d830d0f51","message":{"message_id":"m-10","role":"user","parts":[{"text":"log in"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(63,57,7,NULL,NULL,NULL,'[["receipt_changed",1794800332864452,{"step":"submitted","source":"script","evidence":"rule 3"}],["state_changed",1794800332864452,{"state":"working"}],["receipt_changed",1794800332864477,{"step":"turn_started","source":"script","evidence":"rule 3"}],["message_added",1794800332864508,{"message":{"message_id":"e5b59c7d-15e5-8c8d-a7f3-01a1e26fb03c.2","role":"agent","parts":[{"text":"Show your token."}]}}],["receipt_changed",1794800332864508,{"step":"answered","source":"driver","evidence":"the agent asked for input"}],["state_changed",1794800332864508,{"state":"auth_required","note":"Show your token."}]]');
INSERT INTO "appends" VALUES(67,67,4,-202660547671470470,'m-11','d5ab741d54ced0c1bc815713c2aeda6f','[["task_opened",1794800332896368,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v0_3","context_id":"01a1e26f-b060-79fa-a0d0-686afef2b88a","message":{"message_id":"m-11","role":"user","parts":[{"text":"by 0.3"}]},"metadata":{"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}],["artifact_added",1794800332896368,{"artifact":{"artifact_id":"8e37d7f0-answer","parts":[{"text":"by 0.3"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}],["receipt_changed",1794800332896368,{"step":"answered","source":"script","evidence":"the turn ended"}],["state_changed",1794800332896368,{"state":"completed"}]]');
INSERT INTO "appends" VALUES(68,68,1,NULL,NULL,NULL,'[["task_opened",1794800332900574,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"synapse","context_id":"01a1e26f-b064-7428-ada5-77ee5f28e6ac","message":{"message_id":"fbeaf49b-6212-49e3-a1c8-74b0411690c2","role":"user","parts":[{"text":"wait for a reply"}]},"metadata":{"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false},"queued":false}]]');
INSERT INTO "appends" VALUES(69,69,1,-636833086710317260,'m-12','5d5f2ef502243519f3d24a7708247c6d','[["task_opened",1794800332915785,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-b073-7b5f-b605-1c6f9fc50e48","message":{"message_id":"m-12","role":"user","parts":[{"text":"wait"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
INSERT INTO "appends" VALUES(73,69,5,NULL,NULL,NULL,'[["receipt_changed",1794800332931998,{"step":"submitted","source":"script","evidence":"rule 7"}],["state_changed",1794800332931998,{"state":"working"}],["receipt_changed",1794800332932027,{"step":"turn_started","source":"script","evidence":"rule 7"}],["state_changed",1794800332932053,{"state":"working","note":"working on it"}]]');
INSERT INTO "appends" VALUES(74,74,1,5498124715366556487,'m-13','325614728568122c1888c3a1d654fe45','[["task_opened",1794800332996617,{"agent_id":"synapse-scripted-8180","inbox":"ada","scope":"local","dialect":"a2a_v1","context_id":"01a1e26f-b0c4-72e0-b4ff-fc405e52d07d","message":{"message_id":"m-13","role":"user","parts":[{"text":"behind it"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}]]');
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
INSERT INTO "inboxes" VALUES('ada','17941:1393719');
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
INSERT INTO "pushes" VALUES(1,'972e3fb4-0bec-815c-a6f3-01a1e26fb00d','p-1','ada',56,1,'{"url":"http://127.0.0.1:9/hook","token":"t","scheme":"","credentials":"","dialect":"a2a_v1","set_by":""}');
INSERT INTO "pushes" VALUES(2,'e5b59c7d-15e5-8c8d-a7f3-01a1e26fb03c','p-1','ada',63,1,'{"url":"http://127.0.0.1:9/hook","token":"t","scheme":"","credentials":"","dialect":"a2a_v1","set_by":""}');
CREATE TABLE snapshots (
    number INTEGER PRIMARY KEY, -- of the task
    version INTEGER NOT NULL,
    body TEXT NOT NULL
);
INSERT INTO "snapshots" VALUES(25,9,'{"id":"c74c8a67-daac-8b78-8404-01a1e26fafb9","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"01a1e26f-afb9-74bd-8e0b-81bafa34eefb","scope":"local","dialect":"a2a_v1","state":"canceled","created_at":1794800332729177,"updated_at":1794800332761007,"version":9,"priority":3,"queued":true,"hidden":false,"deadline":null,"receipts":[["queued",1794800332729177,"journal",""],["submitted",1794800332740049,"script","rule 2"],["turn_started",1794800332740085,"script","rule 2"],["answered",1794800332740120,"driver","the agent asked for input"],["canceled",1794800332761007,"journal","canceled by request"]],"history":[{"message_id":"m-6","role":"user","parts":[{"text":"ask me"}]},{"message_id":"c74c8a67-daac-8b78-8404-01a1e26fafb9.2","role":"agent","parts":[{"text":"Which one?"}]}],"artifacts":[],"reason":"canceled","note":"canceled by request","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(34,16,'{"id":"5879d3c8-8eba-8942-8be3-01a1e26fafe0","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"01a1e26f-afe0-77be-a138-eb2d6a0bc71d","scope":"local","dialect":"a2a_v1","state":"completed","created_at":1794800332768820,"updated_at":1794800332803889,"version":16,"priority":3,"queued":true,"hidden":false,"deadline":null,"receipts":[["queued",1794800332768820,"journal",""],["submitted",1794800332779841,"script","rule 2"],["turn_started",1794800332779873,"script","rule 2"],["answered",1794800332779907,"driver","the agent asked for input"],["queued",1794800332791671,"journal",""],["submitted",1794800332803822,"script","the steps after the question"],["turn_started",1794800332803858,"script","the steps after the question"],["answered",1794800332803889,"script","the turn ended"]],"history":[{"message_id":"m-7","role":"user","parts":[{"text":"ask me"}]},{"message_id":"5879d3c8-8eba-8942-8be3-01a1e26fafe0.2","role":"agent","parts":[{"text":"Which one?"}]},{"message_id":"m-8","role":"user","parts":[{"text":"the first"}]}],"artifacts":[{"artifact_id":"5879d3c8-answer","parts":[{"text":"you chose the first"}],"name":"answer","metadata":{"source":"script","inferred":false}}],"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(50,7,'{"id":"972e3fb4-0bec-815c-a6f3-01a1e26fb00d","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"01a1e26f-b00d-7723-ac73-65d7a1cf29d9","scope":"local","dialect":"a2a_v1","state":"input_required","created_at":1794800332813212,"updated_at":1794800332827876,"version":7,"priority":3,"queued":true,"hidden":false,"deadline":null,"receipts":[["queued",1794800332813212,"journal",""],["submitted",1794800332827812,"script","rule 2"],["turn_started",1794800332827844,"script","rule 2"],["answered",1794800332827876,"driver","the agent asked for input"]],"history":[{"message_id":"m-9","role":"user","parts":[{"text":"ask me"}]},{"message_id":"972e3fb4-0bec-815c-a6f3-01a1e26fb00d.2","role":"agent","parts":[{"text":"Which one?"}]}],"artifacts":[],"note":"Which one?","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(57,7,'{"id":"e5b59c7d-15e5-8c8d-a7f3-01a1e26fb03c","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"01a1e26f-b03c-73c8-8e7b-339d830d0f51","scope":"local","dialect":"a2a_v1","state":"auth_required","created_at":1794800332860759,"updated_at":1794800332864508,"version":7,"priority":3,"queued":true,"hidden":false,"deadline":null,"receipts":[["queued",1794800332860759,"journal",""],["submitted",1794800332864452,"script","rule 3"],["turn_started",1794800332864477,"script","rule 3"],["answered",1794800332864508,"driver","the agent asked for input"]],"history":[{"message_id":"m-10","role":"user","parts":[{"text":"log in"}]},{"message_id":"e5b59c7d-15e5-8c8d-a7f3-01a1e26fb03c.2","role":"agent","parts":[{"text":"Show your token."}]}],"artifacts":[],"note":"Show your token.","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
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
INSERT INTO "tasks" VALUES(10,-9105748002253786305,'d707f44a-8dae-8755-b33f-01a1e26faf70','ada','synapse-scripted-8180','local',-9105748002253800732,'01a1e26f-af70-7ae4-87fd-2393dbb8f80e','','completed',1794800332656726,1794800332656726,10,0);
INSERT INTO "tasks" VALUES(14,-9105748002252415002,'91b08436-4a1e-8e7e-9fe6-01a1e26faf85','ada','synapse-scripted-8180','local',-9105748002252426837,'01a1e26f-af85-71ab-908a-f34ca92c4c9d','','completed',1794800332677218,1794800332677218,4,0);
INSERT INTO "tasks" VALUES(17,-9105748002251367359,'e96e0151-32f7-8111-9c41-01a1e26faf95','ada','synapse-scripted-8180','local',-9105748002251375944,'01a1e26f-af95-7ab8-93fd-3b52ea18ea6a','','failed',1794800332693424,1794800332693424,3,0);
INSERT INTO "tasks" VALUES(20,-9105748002250585229,'720eacf9-1df7-8ad6-8b73-01a1e26fafa1','ada','synapse-scripted-8180','local',-9105748002250588924,'01a1e26f-afa1-7d04-b563-6a0eee0f93dc','','rejected',1794800332705984,1794800332705984,3,0);
INSERT INTO "tasks" VALUES(24,-9105748002249396089,'5dd2c531-87c7-82a8-b087-01a1e26fafb3','ada','synapse-scripted-8180','local',-9105748002249411297,'01a1e26f-afb3-751f-a84c-d8234b921c8c','','completed',1794800332723452,1794800332723452,4,0);
INSERT INTO "tasks" VALUES(25,-9105748002249014268,'c74c8a67-daac-8b78-8404-01a1e26fafb9','ada','synapse-scripted-8180','local',-9105748002249018179,'01a1e26f-afb9-74bd-8e0b-81bafa34eefb','','canceled',1794800332729177,1794800332761007,9,0);
INSERT INTO "tasks" VALUES(34,-9105748002246456349,'5879d3c8-8eba-8942-8be3-01a1e26fafe0','ada','synapse-scripted-8180','local',-9105748002246461506,'01a1e26f-afe0-77be-a138-eb2d6a0bc71d','','completed',1794800332768820,1794800332803889,16,0);
INSERT INTO "tasks" VALUES(50,-9105748002243500301,'972e3fb4-0bec-815c-a6f3-01a1e26fb00d','ada','synapse-scripted-8180','local',-9105748002243512541,'01a1e26f-b00d-7723-ac73-65d7a1cf29d9','','input_required',1794800332813212,1794800332827876,7,0);
INSERT INTO "tasks" VALUES(57,-9105748002240419853,'e5b59c7d-15e5-8c8d-a7f3-01a1e26fb03c','ada','synapse-scripted-8180','local',-9105748002240433208,'01a1e26f-b03c-73c8-8e7b-339d830d0f51','','auth_required',1794800332860759,1794800332864508,7,0);
INSERT INTO "tasks" VALUES(67,-9105748002238065781,'8e37d7f0-abd8-80c1-938b-01a1e26fb060','ada','synapse-scripted-8180','local',-9105748002238072326,'01a1e26f-b060-79fa-a0d0-686afef2b88a','','completed',1794800332896368,1794800332896368,4,0);
INSERT INTO "tasks" VALUES(68,-9105748002237794017,'236d5124-0667-8303-b91f-01a1e26fb064','ada','synapse-scripted-8180','local',-9105748002237811672,'01a1e26f-b064-7428-ada5-77ee5f28e6ac','','submitted',1794800332900574,1794800332900574,1,0);
INSERT INTO "tasks" VALUES(69,-9105748002236814773,'16939eba-bddb-86dc-aa4b-01a1e26fb073','ada','synapse-scripted-8180','local',-9105748002236826785,'01a1e26f-b073-7b5f-b605-1c6f9fc50e48','','working',1794800332915785,1794800332932053,5,0);
INSERT INTO "tasks" VALUES(74,-9105748002231514119,'3e9614b6-281b-8d7c-8bf9-01a1e26fb0c4','ada','synapse-scripted-8180','local',-9105748002231520544,'01a1e26f-b0c4-72e0-b4ff-fc405e52d07d','','submitted',1794800332996617,1794800332996617,1,0);
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
PRAGMA user_version = 5;
