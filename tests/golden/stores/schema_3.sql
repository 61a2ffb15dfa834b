BEGIN TRANSACTION;
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
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice, so that a reader can resume after one that was pruned
    task_id TEXT NOT NULL,
    version INTEGER NOT NULL,              -- of the task after this event
    kind TEXT NOT NULL,
    at INTEGER NOT NULL,                   -- moments are microseconds since 1970
    body TEXT NOT NULL                     -- JSON; see rows.py
);
INSERT INTO "events" VALUES(1,'30cdb003-5ac0-4178-b380-403ca2531508',1,'task_opened',1794800328530483,'{"agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"02057c80-5249-4b93-a887-c08c05a63be6","scope":"local","dialect":"a2a_v1","message":{"message_id":"m-1","role":"user","parts":[{"text":"report"},{"metadata":{"x":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"},"data":{"n":[1.5,null,1000000000000000000000000000000,-0.0],"\u043a\u043b\u044e\u0447":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''","":{}}},{"name":"f.bin","media_type":"application/octet-stream","url":"","bytes":"AAECAwQF/w=="},{"media_type":"text/html","url":"https://example.com/x"}],"metadata":{"k":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"},"extensions":["https://example.com/e"]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "events" VALUES(2,'30cdb003-5ac0-4178-b380-403ca2531508',2,'receipt_changed',1794800328530534,'{"step":"submitted","source":"script","evidence":"rule 1"}');
INSERT INTO "events" VALUES(3,'30cdb003-5ac0-4178-b380-403ca2531508',3,'state_changed',1794800328530534,'{"state":"working"}');
INSERT INTO "events" VALUES(4,'30cdb003-5ac0-4178-b380-403ca2531508',4,'receipt_changed',1794800328530534,'{"step":"turn_started","source":"script","evidence":"rule 1"}');
INSERT INTO "events" VALUES(5,'30cdb003-5ac0-4178-b380-403ca2531508',5,'state_changed',1794800328530534,'{"state":"working","note":"looking"}');
INSERT INTO "events" VALUES(6,'30cdb003-5ac0-4178-b380-403ca2531508',6,'artifact_added',1794800328530534,'{"artifact":{"artifact_id":"page","parts":[{"media_type":"text/markdown","text":"# report"}],"name":"page"},"append":false,"last_chunk":true}');
INSERT INTO "events" VALUES(7,'30cdb003-5ac0-4178-b380-403ca2531508',7,'artifact_added',1794800328530534,'{"artifact":{"artifact_id":"file","parts":[{"name":"a.txt","media_type":"text/plain","url":"","bytes":"YnkgaGFuZAo="}],"name":"file"},"append":false,"last_chunk":true}');
INSERT INTO "events" VALUES(8,'30cdb003-5ac0-4178-b380-403ca2531508',8,'artifact_added',1794800328530534,'{"artifact":{"artifact_id":"facts","parts":[{"data":{"passed":12,"ratio":0.5}}],"name":"facts"},"append":false,"last_chunk":true}');
INSERT INTO "events" VALUES(9,'30cdb003-5ac0-4178-b380-403ca2531508',9,'artifact_added',1794800328530534,'{"artifact":{"artifact_id":"table","parts":[{"name":"t.csv","media_type":"text/csv","url":"","bytes":"YSxiCg=="}],"name":"table"},"append":false,"last_chunk":false}');
INSERT INTO "events" VALUES(10,'30cdb003-5ac0-4178-b380-403ca2531508',10,'artifact_added',1794800328530534,'{"artifact":{"artifact_id":"table","parts":[{"name":"t.csv","media_type":"text/csv","url":"","bytes":"MSwyCg=="}],"name":"table"},"append":true,"last_chunk":true}');
INSERT INTO "events" VALUES(11,'30cdb003-5ac0-4178-b380-403ca2531508',11,'artifact_added',1794800328530534,'{"artifact":{"artifact_id":"30cdb003-answer","parts":[{"text":"done"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}');
INSERT INTO "events" VALUES(12,'30cdb003-5ac0-4178-b380-403ca2531508',12,'receipt_changed',1794800328530534,'{"step":"answered","source":"script","evidence":"the turn ended"}');
INSERT INTO "events" VALUES(13,'30cdb003-5ac0-4178-b380-403ca2531508',13,'state_changed',1794800328530534,'{"state":"completed"}');
INSERT INTO "events" VALUES(14,'1b89e75f-ba0c-45ae-b9d6-e839dc51b313',1,'task_opened',1794800328556522,'{"agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"16279fb6-4143-4d1b-9133-99c3d00f587f","scope":"local","dialect":"a2a_v1","message":{"message_id":"m-2","role":"user","parts":[{"text":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "events" VALUES(15,'1b89e75f-ba0c-45ae-b9d6-e839dc51b313',2,'receipt_changed',1794800328556574,'{"step":"submitted","source":"script","evidence":"default"}');
INSERT INTO "events" VALUES(16,'1b89e75f-ba0c-45ae-b9d6-e839dc51b313',3,'state_changed',1794800328556574,'{"state":"working"}');
INSERT INTO "events" VALUES(17,'1b89e75f-ba0c-45ae-b9d6-e839dc51b313',4,'receipt_changed',1794800328556574,'{"step":"turn_started","source":"script","evidence":"default"}');
INSERT INTO "events" VALUES(18,'1b89e75f-ba0c-45ae-b9d6-e839dc51b313',5,'artifact_added',1794800328556574,'{"artifact":{"artifact_id":"1b89e75f-answer","parts":[{"text":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}');
INSERT INTO "events" VALUES(19,'1b89e75f-ba0c-45ae-b9d6-e839dc51b313',6,'receipt_changed',1794800328556574,'{"step":"answered","source":"script","evidence":"the turn ended"}');
INSERT INTO "events" VALUES(20,'1b89e75f-ba0c-45ae-b9d6-e839dc51b313',7,'state_changed',1794800328556574,'{"state":"completed"}');
INSERT INTO "events" VALUES(21,'8a1bfc62-63c3-4f83-9026-25f73e2227f2',1,'task_opened',1794800328569016,'{"agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"ef98f06d-9867-44c2-b3a8-505425f29e51","scope":"local","dialect":"a2a_v1","message":{"message_id":"m-3","role":"user","parts":[{"text":"fail"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "events" VALUES(22,'8a1bfc62-63c3-4f83-9026-25f73e2227f2',2,'receipt_changed',1794800328569055,'{"step":"submitted","source":"script","evidence":"rule 6"}');
INSERT INTO "events" VALUES(23,'8a1bfc62-63c3-4f83-9026-25f73e2227f2',3,'state_changed',1794800328569055,'{"state":"working"}');
INSERT INTO "events" VALUES(24,'8a1bfc62-63c3-4f83-9026-25f73e2227f2',4,'receipt_changed',1794800328569055,'{"step":"turn_started","source":"script","evidence":"rule 6"}');
INSERT INTO "events" VALUES(25,'8a1bfc62-63c3-4f83-9026-25f73e2227f2',5,'receipt_changed',1794800328569055,'{"step":"failed","source":"journal","evidence":"no credit"}');
INSERT INTO "events" VALUES(26,'8a1bfc62-63c3-4f83-9026-25f73e2227f2',6,'state_changed',1794800328569055,'{"state":"failed","reason":"quota","note":"no credit"}');
INSERT INTO "events" VALUES(27,'385cd4bb-ccb0-47e1-b8a4-3676010a8f37',1,'task_opened',1794800328589017,'{"agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"c5e1b251-8e2a-414c-b74b-f8d7ca87f951","scope":"local","dialect":"a2a_v1","message":{"message_id":"m-4","role":"user","parts":[{"text":"refuse"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "events" VALUES(28,'385cd4bb-ccb0-47e1-b8a4-3676010a8f37',2,'receipt_changed',1794800328589059,'{"step":"submitted","source":"script","evidence":"rule 4"}');
INSERT INTO "events" VALUES(29,'385cd4bb-ccb0-47e1-b8a4-3676010a8f37',3,'state_changed',1794800328589059,'{"state":"working"}');
INSERT INTO "events" VALUES(30,'385cd4bb-ccb0-47e1-b8a4-3676010a8f37',4,'receipt_changed',1794800328589059,'{"step":"turn_started","source":"script","evidence":"rule 4"}');
INSERT INTO "events" VALUES(31,'385cd4bb-ccb0-47e1-b8a4-3676010a8f37',5,'receipt_changed',1794800328589059,'{"step":"failed","source":"journal","evidence":"not for me"}');
INSERT INTO "events" VALUES(32,'385cd4bb-ccb0-47e1-b8a4-3676010a8f37',6,'state_changed',1794800328589059,'{"state":"rejected","reason":"rejected","note":"not for me"}');
INSERT INTO "events" VALUES(33,'202c198b-6f10-4272-bd00-6e0d4121a0c1',1,'task_opened',1794800328598872,'{"agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"77c5be28-ad60-4afa-aefe-f702df945cb5","scope":"local","dialect":"a2a_v1","message":{"message_id":"m-5","role":"user","parts":[{"text":"direct"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "events" VALUES(34,'202c198b-6f10-4272-bd00-6e0d4121a0c1',2,'receipt_changed',1794800328598908,'{"step":"submitted","source":"script","evidence":"rule 5"}');
INSERT INTO "events" VALUES(35,'202c198b-6f10-4272-bd00-6e0d4121a0c1',3,'state_changed',1794800328598908,'{"state":"working"}');
INSERT INTO "events" VALUES(36,'202c198b-6f10-4272-bd00-6e0d4121a0c1',4,'receipt_changed',1794800328598908,'{"step":"turn_started","source":"script","evidence":"rule 5"}');
INSERT INTO "events" VALUES(37,'202c198b-6f10-4272-bd00-6e0d4121a0c1',5,'artifact_added',1794800328598908,'{"artifact":{"artifact_id":"202c198b-answer","parts":[{"text":"a plain message"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}');
INSERT INTO "events" VALUES(38,'202c198b-6f10-4272-bd00-6e0d4121a0c1',6,'receipt_changed',1794800328598908,'{"step":"answered","source":"script","evidence":"the turn ended"}');
INSERT INTO "events" VALUES(39,'202c198b-6f10-4272-bd00-6e0d4121a0c1',7,'state_changed',1794800328598908,'{"state":"completed","reason":"direct_message"}');
INSERT INTO "events" VALUES(40,'5529cd21-3fe9-4c02-977e-b49fefa182f3',1,'task_opened',1794800328620971,'{"agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"520af07b-022e-4471-84d8-f17aa20c7cab","scope":"local","dialect":"a2a_v1","message":{"message_id":"m-6","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "events" VALUES(41,'5529cd21-3fe9-4c02-977e-b49fefa182f3',2,'receipt_changed',1794800328623978,'{"step":"submitted","source":"script","evidence":"rule 2"}');
INSERT INTO "events" VALUES(42,'5529cd21-3fe9-4c02-977e-b49fefa182f3',3,'state_changed',1794800328623978,'{"state":"working"}');
INSERT INTO "events" VALUES(43,'5529cd21-3fe9-4c02-977e-b49fefa182f3',4,'receipt_changed',1794800328624013,'{"step":"turn_started","source":"script","evidence":"rule 2"}');
INSERT INTO "events" VALUES(44,'5529cd21-3fe9-4c02-977e-b49fefa182f3',5,'message_added',1794800328624046,'{"message":{"message_id":"5529cd21-3fe9-4c02-977e-b49fefa182f3.2","role":"agent","parts":[{"text":"Which one?"}]}}');
INSERT INTO "events" VALUES(45,'5529cd21-3fe9-4c02-977e-b49fefa182f3',6,'receipt_changed',1794800328624046,'{"step":"answered","source":"driver","evidence":"the agent asked for input"}');
INSERT INTO "events" VALUES(46,'5529cd21-3fe9-4c02-977e-b49fefa182f3',7,'state_changed',1794800328624046,'{"state":"input_required","note":"Which one?"}');
INSERT INTO "events" VALUES(47,'5529cd21-3fe9-4c02-977e-b49fefa182f3',8,'receipt_changed',1794800328628669,'{"step":"canceled","source":"journal","evidence":"canceled by request"}');
INSERT INTO "events" VALUES(48,'5529cd21-3fe9-4c02-977e-b49fefa182f3',9,'state_changed',1794800328628669,'{"state":"canceled","reason":"canceled","note":"canceled by request"}');
INSERT INTO "events" VALUES(49,'bdaf4963-45f0-4411-84ce-5d2044a7d007',1,'task_opened',1794800328632834,'{"agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"c629298f-2fc9-4d0d-9db5-6c1aa04ba90d","scope":"local","dialect":"a2a_v1","message":{"message_id":"m-7","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "events" VALUES(50,'bdaf4963-45f0-4411-84ce-5d2044a7d007',2,'receipt_changed',1794800328651904,'{"step":"submitted","source":"script","evidence":"rule 2"}');
INSERT INTO "events" VALUES(51,'bdaf4963-45f0-4411-84ce-5d2044a7d007',3,'state_changed',1794800328651904,'{"state":"working"}');
INSERT INTO "events" VALUES(52,'bdaf4963-45f0-4411-84ce-5d2044a7d007',4,'receipt_changed',1794800328651946,'{"step":"turn_started","source":"script","evidence":"rule 2"}');
INSERT INTO "events" VALUES(53,'bdaf4963-45f0-4411-84ce-5d2044a7d007',5,'message_added',1794800328651983,'{"message":{"message_id":"bdaf4963-45f0-4411-84ce-5d2044a7d007.2","role":"agent","parts":[{"text":"Which one?"}]}}');
INSERT INTO "events" VALUES(54,'bdaf4963-45f0-4411-84ce-5d2044a7d007',6,'receipt_changed',1794800328651983,'{"step":"answered","source":"driver","evidence":"the agent asked for input"}');
INSERT INTO "events" VALUES(55,'bdaf4963-45f0-4411-84ce-5d2044a7d007',7,'state_changed',1794800328651983,'{"state":"input_required","note":"Which one?"}');
INSERT INTO "events" VALUES(56,'bdaf4963-45f0-4411-84ce-5d2044a7d007',8,'message_added',1794800328654550,'{"message":{"message_id":"m-8","role":"user","parts":[{"text":"the first"}]}}');
INSERT INTO "events" VALUES(57,'bdaf4963-45f0-4411-84ce-5d2044a7d007',9,'receipt_changed',1794800328654550,'{"step":"queued","source":"journal","evidence":""}');
INSERT INTO "events" VALUES(58,'bdaf4963-45f0-4411-84ce-5d2044a7d007',10,'state_changed',1794800328654550,'{"state":"submitted"}');
INSERT INTO "events" VALUES(59,'bdaf4963-45f0-4411-84ce-5d2044a7d007',11,'receipt_changed',1794800328655535,'{"step":"submitted","source":"script","evidence":"the steps after the question"}');
INSERT INTO "events" VALUES(60,'bdaf4963-45f0-4411-84ce-5d2044a7d007',12,'state_changed',1794800328655535,'{"state":"working"}');
INSERT INTO "events" VALUES(61,'bdaf4963-45f0-4411-84ce-5d2044a7d007',13,'receipt_changed',1794800328655560,'{"step":"turn_started","source":"script","evidence":"the steps after the question"}');
INSERT INTO "events" VALUES(62,'bdaf4963-45f0-4411-84ce-5d2044a7d007',14,'artifact_added',1794800328655585,'{"artifact":{"artifact_id":"bdaf4963-answer","parts":[{"text":"you chose the first"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}');
INSERT INTO "events" VALUES(63,'bdaf4963-45f0-4411-84ce-5d2044a7d007',15,'receipt_changed',1794800328655585,'{"step":"answered","source":"script","evidence":"the turn ended"}');
INSERT INTO "events" VALUES(64,'bdaf4963-45f0-4411-84ce-5d2044a7d007',16,'state_changed',1794800328655585,'{"state":"completed"}');
INSERT INTO "events" VALUES(65,'796032d8-424b-4891-beb8-0035e737eee3',1,'task_opened',1794800328660411,'{"agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"88c700d7-145a-4647-8acc-6c4240ef7315","scope":"local","dialect":"a2a_v1","message":{"message_id":"m-9","role":"user","parts":[{"text":"ask me"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "events" VALUES(66,'796032d8-424b-4891-beb8-0035e737eee3',2,'receipt_changed',1794800328663544,'{"step":"submitted","source":"script","evidence":"rule 2"}');
INSERT INTO "events" VALUES(67,'796032d8-424b-4891-beb8-0035e737eee3',3,'state_changed',1794800328663544,'{"state":"working"}');
INSERT INTO "events" VALUES(68,'796032d8-424b-4891-beb8-0035e737eee3',4,'receipt_changed',1794800328663568,'{"step":"turn_started","source":"script","evidence":"rule 2"}');
INSERT INTO "events" VALUES(69,'796032d8-424b-4891-beb8-0035e737eee3',5,'message_added',1794800328663592,'{"message":{"message_id":"796032d8-424b-4891-beb8-0035e737eee3.2","role":"agent","parts":[{"text":"Which one?"}]}}');
INSERT INTO "events" VALUES(70,'796032d8-424b-4891-beb8-0035e737eee3',6,'receipt_changed',1794800328663592,'{"step":"answered","source":"driver","evidence":"the agent asked for input"}');
INSERT INTO "events" VALUES(71,'796032d8-424b-4891-beb8-0035e737eee3',7,'state_changed',1794800328663592,'{"state":"input_required","note":"Which one?"}');
INSERT INTO "events" VALUES(72,'e314b98d-507c-470d-b954-5be32d6c1112',1,'task_opened',1794800328666575,'{"agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"43ff3a59-bfb5-4bd2-b9da-3235b39f3cf8","scope":"local","dialect":"a2a_v1","message":{"message_id":"m-10","role":"user","parts":[{"text":"log in"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "events" VALUES(73,'e314b98d-507c-470d-b954-5be32d6c1112',2,'receipt_changed',1794800328667812,'{"step":"submitted","source":"script","evidence":"rule 3"}');
INSERT INTO "events" VALUES(74,'e314b98d-507c-470d-b954-5be32d6c1112',3,'state_changed',1794800328667812,'{"state":"working"}');
INSERT INTO "events" VALUES(75,'e314b98d-507c-470d-b954-5be32d6c1112',4,'receipt_changed',1794800328667830,'{"step":"turn_started","source":"script","evidence":"rule 3"}');
INSERT INTO "events" VALUES(76,'e314b98d-507c-470d-b954-5be32d6c1112',5,'message_added',1794800328667853,'{"message":{"message_id":"e314b98d-507c-470d-b954-5be32d6c1112.2","role":"agent","parts":[{"text":"Show your token."}]}}');
INSERT INTO "events" VALUES(77,'e314b98d-507c-470d-b954-5be32d6c1112',6,'receipt_changed',1794800328667853,'{"step":"answered","source":"driver","evidence":"the agent asked for input"}');
INSERT INTO "events" VALUES(78,'e314b98d-507c-470d-b954-5be32d6c1112',7,'state_changed',1794800328667853,'{"state":"auth_required","note":"Show your token."}');
INSERT INTO "events" VALUES(79,'1c9c6d10-86ec-4de1-a10e-debad66eb1bb',1,'task_opened',1794800328671015,'{"agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"a89eff44-f685-4603-9b0d-b0b366059034","scope":"local","dialect":"a2a_v0_3","message":{"message_id":"m-11","role":"user","parts":[{"text":"by 0.3"}]},"metadata":{"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "events" VALUES(80,'1c9c6d10-86ec-4de1-a10e-debad66eb1bb',2,'receipt_changed',1794800328671030,'{"step":"submitted","source":"script","evidence":"default"}');
INSERT INTO "events" VALUES(81,'1c9c6d10-86ec-4de1-a10e-debad66eb1bb',3,'state_changed',1794800328671030,'{"state":"working"}');
INSERT INTO "events" VALUES(82,'1c9c6d10-86ec-4de1-a10e-debad66eb1bb',4,'receipt_changed',1794800328671030,'{"step":"turn_started","source":"script","evidence":"default"}');
INSERT INTO "events" VALUES(83,'1c9c6d10-86ec-4de1-a10e-debad66eb1bb',5,'artifact_added',1794800328671030,'{"artifact":{"artifact_id":"1c9c6d10-answer","parts":[{"text":"by 0.3"}],"name":"answer","metadata":{"source":"script","inferred":false}},"append":false,"last_chunk":true}');
INSERT INTO "events" VALUES(84,'1c9c6d10-86ec-4de1-a10e-debad66eb1bb',6,'receipt_changed',1794800328671030,'{"step":"answered","source":"script","evidence":"the turn ended"}');
INSERT INTO "events" VALUES(85,'1c9c6d10-86ec-4de1-a10e-debad66eb1bb',7,'state_changed',1794800328671030,'{"state":"completed"}');
INSERT INTO "events" VALUES(86,'1b92a7ad-29ab-42c3-ba66-35c2eb3325f4',1,'task_opened',1794800328673686,'{"agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"224740a4-a508-4165-aba8-0d745f095054","scope":"local","dialect":"synapse","message":{"message_id":"2583a119-6043-4457-95ed-c58977bcb34e","role":"user","parts":[{"text":"wait for a reply"}]},"metadata":{"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false},"queued":false}');
INSERT INTO "events" VALUES(87,'11598683-8b4a-4812-a5a5-ad673ef2b294',1,'task_opened',1794800328675056,'{"agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"1e2029b5-037b-4af7-98fb-58dd727b058d","scope":"local","dialect":"a2a_v1","message":{"message_id":"m-12","role":"user","parts":[{"text":"wait"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "events" VALUES(88,'11598683-8b4a-4812-a5a5-ad673ef2b294',2,'receipt_changed',1794800328676122,'{"step":"submitted","source":"script","evidence":"rule 7"}');
INSERT INTO "events" VALUES(89,'11598683-8b4a-4812-a5a5-ad673ef2b294',3,'state_changed',1794800328676122,'{"state":"working"}');
INSERT INTO "events" VALUES(90,'11598683-8b4a-4812-a5a5-ad673ef2b294',4,'receipt_changed',1794800328676139,'{"step":"turn_started","source":"script","evidence":"rule 7"}');
INSERT INTO "events" VALUES(91,'11598683-8b4a-4812-a5a5-ad673ef2b294',5,'state_changed',1794800328676156,'{"state":"working","note":"working on it"}');
INSERT INTO "events" VALUES(92,'2191c0ab-0eb9-4b8a-8a13-5d7913a4c0d6',1,'task_opened',1794800328729614,'{"agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"47cde993-6886-4eea-bddb-1f87c5ba0eab","scope":"local","dialect":"a2a_v1","message":{"message_id":"m-13","role":"user","parts":[{"text":"behind it"}]},"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
CREATE TABLE inboxes (
    inbox TEXT PRIMARY KEY,
    holder TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "inboxes" VALUES('ada','17847:1393300');
CREATE TABLE messages (
    inbox TEXT NOT NULL,
    scope TEXT NOT NULL,
    message_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (inbox, scope, message_id)
) WITHOUT ROWID;
INSERT INTO "messages" VALUES('ada','local','m-1','30cdb003-5ac0-4178-b380-403ca2531508','6372fd5524d71e42e9747aec547dee01');
INSERT INTO "messages" VALUES('ada','local','m-10','e314b98d-507c-470d-b954-5be32d6c1112','def22e4c98922beda81481ef65b22a85');
INSERT INTO "messages" VALUES('ada','local','m-11','1c9c6d10-86ec-4de1-a10e-debad66eb1bb','d5ab741d54ced0c1bc815713c2aeda6f');
INSERT INTO "messages" VALUES('ada','local','m-12','11598683-8b4a-4812-a5a5-ad673ef2b294','5d5f2ef502243519f3d24a7708247c6d');
INSERT INTO "messages" VALUES('ada','local','m-13','2191c0ab-0eb9-4b8a-8a13-5d7913a4c0d6','325614728568122c1888c3a1d654fe45');
INSERT INTO "messages" VALUES('ada','local','m-2','1b89e75f-ba0c-45ae-b9d6-e839dc51b313','cf48e91e7989361699692f9926b6f9ec');
INSERT INTO "messages" VALUES('ada','local','m-3','8a1bfc62-63c3-4f83-9026-25f73e2227f2','d1209023fc303b89f41e28d269d32e2a');
INSERT INTO "messages" VALUES('ada','local','m-4','385cd4bb-ccb0-47e1-b8a4-3676010a8f37','d9905bea544c5ef458d4ab909121b55b');
INSERT INTO "messages" VALUES('ada','local','m-5','202c198b-6f10-4272-bd00-6e0d4121a0c1','6864cf16f5dfffd5425d89d3e25a5417');
INSERT INTO "messages" VALUES('ada','local','m-6','5529cd21-3fe9-4c02-977e-b49fefa182f3','f022ef3212edfbcbf378e1074dcc5b40');
INSERT INTO "messages" VALUES('ada','local','m-7','bdaf4963-45f0-4411-84ce-5d2044a7d007','f022ef3212edfbcbf378e1074dcc5b40');
INSERT INTO "messages" VALUES('ada','local','m-8','bdaf4963-45f0-4411-84ce-5d2044a7d007','7ceecd44031cc1f3c3cd3bb65c4bb70c');
INSERT INTO "messages" VALUES('ada','local','m-9','796032d8-424b-4891-beb8-0035e737eee3','f022ef3212edfbcbf378e1074dcc5b40');
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
INSERT INTO "pushes" VALUES(1,'796032d8-424b-4891-beb8-0035e737eee3','p-1','ada',71,1,'{"url":"http://127.0.0.1:9/hook","token":"t","scheme":"","credentials":"","dialect":"a2a_v1"}');
INSERT INTO "pushes" VALUES(2,'e314b98d-507c-470d-b954-5be32d6c1112','p-1','ada',78,1,'{"url":"http://127.0.0.1:9/hook","token":"t","scheme":"","credentials":"","dialect":"a2a_v1"}');
CREATE TABLE snapshots (
    number INTEGER PRIMARY KEY, -- of the task
    version INTEGER NOT NULL,
    body TEXT NOT NULL
);
INSERT INTO "snapshots" VALUES(1,13,'{"id":"30cdb003-5ac0-4178-b380-403ca2531508","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"02057c80-5249-4b93-a887-c08c05a63be6","scope":"local","dialect":"a2a_v1","state":"completed","history":[{"message_id":"m-1","role":"user","parts":[{"text":"report"},{"metadata":{"x":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"},"data":{"n":[1.5,null,1000000000000000000000000000000,-0.0],"\u043a\u043b\u044e\u0447":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''","":{}}},{"name":"f.bin","media_type":"application/octet-stream","url":"","bytes":"AAECAwQF/w=="},{"media_type":"text/html","url":"https://example.com/x"}],"metadata":{"k":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"},"extensions":["https://example.com/e"]}],"created_at":1794800328530483,"updated_at":1794800328530534,"version":13,"priority":3,"queued":true,"hidden":false,"deadline":null,"artifacts":[{"artifact_id":"page","parts":[{"media_type":"text/markdown","text":"# report"}],"name":"page"},{"artifact_id":"file","parts":[{"name":"a.txt","media_type":"text/plain","url":"","bytes":"YnkgaGFuZAo="}],"name":"file"},{"artifact_id":"facts","parts":[{"data":{"passed":12,"ratio":0.5}}],"name":"facts"},{"artifact_id":"table","parts":[{"name":"t.csv","media_type":"text/csv","url":"","bytes":"YSxiCg=="},{"name":"t.csv","media_type":"text/csv","url":"","bytes":"MSwyCg=="}],"name":"table"},{"artifact_id":"30cdb003-answer","parts":[{"text":"done"}],"name":"answer","metadata":{"source":"script","inferred":false}}],"receipts":[["queued",1794800328530483,"journal",""],["submitted",1794800328530534,"script","rule 1"],["turn_started",1794800328530534,"script","rule 1"],["answered",1794800328530534,"script","the turn ended"]],"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(2,7,'{"id":"1b89e75f-ba0c-45ae-b9d6-e839dc51b313","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"16279fb6-4143-4d1b-9133-99c3d00f587f","scope":"local","dialect":"a2a_v1","state":"completed","history":[{"message_id":"m-2","role":"user","parts":[{"text":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"}]}],"created_at":1794800328556522,"updated_at":1794800328556574,"version":7,"priority":3,"queued":true,"hidden":false,"deadline":null,"artifacts":[{"artifact_id":"1b89e75f-answer","parts":[{"text":"\u65e5\u672c\u8a9e \"quoted\" \\ \ud800 \u0000 \u2028 ''single''"}],"name":"answer","metadata":{"source":"script","inferred":false}}],"receipts":[["queued",1794800328556522,"journal",""],["submitted",1794800328556574,"script","default"],["turn_started",1794800328556574,"script","default"],["answered",1794800328556574,"script","the turn ended"]],"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(3,6,'{"id":"8a1bfc62-63c3-4f83-9026-25f73e2227f2","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"ef98f06d-9867-44c2-b3a8-505425f29e51","scope":"local","dialect":"a2a_v1","state":"failed","history":[{"message_id":"m-3","role":"user","parts":[{"text":"fail"}]}],"created_at":1794800328569016,"updated_at":1794800328569055,"version":6,"priority":3,"queued":true,"hidden":false,"deadline":null,"artifacts":[],"receipts":[["queued",1794800328569016,"journal",""],["submitted",1794800328569055,"script","rule 6"],["turn_started",1794800328569055,"script","rule 6"],["failed",1794800328569055,"journal","no credit"]],"reason":"quota","note":"no credit","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(4,6,'{"id":"385cd4bb-ccb0-47e1-b8a4-3676010a8f37","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"c5e1b251-8e2a-414c-b74b-f8d7ca87f951","scope":"local","dialect":"a2a_v1","state":"rejected","history":[{"message_id":"m-4","role":"user","parts":[{"text":"refuse"}]}],"created_at":1794800328589017,"updated_at":1794800328589059,"version":6,"priority":3,"queued":true,"hidden":false,"deadline":null,"artifacts":[],"receipts":[["queued",1794800328589017,"journal",""],["submitted",1794800328589059,"script","rule 4"],["turn_started",1794800328589059,"script","rule 4"],["failed",1794800328589059,"journal","not for me"]],"reason":"rejected","note":"not for me","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(5,7,'{"id":"202c198b-6f10-4272-bd00-6e0d4121a0c1","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"77c5be28-ad60-4afa-aefe-f702df945cb5","scope":"local","dialect":"a2a_v1","state":"completed","history":[{"message_id":"m-5","role":"user","parts":[{"text":"direct"}]}],"created_at":1794800328598872,"updated_at":1794800328598908,"version":7,"priority":3,"queued":true,"hidden":false,"deadline":null,"artifacts":[{"artifact_id":"202c198b-answer","parts":[{"text":"a plain message"}],"name":"answer","metadata":{"source":"script","inferred":false}}],"receipts":[["queued",1794800328598872,"journal",""],["submitted",1794800328598908,"script","rule 5"],["turn_started",1794800328598908,"script","rule 5"],["answered",1794800328598908,"script","the turn ended"]],"reason":"direct_message","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(6,9,'{"id":"5529cd21-3fe9-4c02-977e-b49fefa182f3","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"520af07b-022e-4471-84d8-f17aa20c7cab","scope":"local","dialect":"a2a_v1","state":"canceled","history":[{"message_id":"m-6","role":"user","parts":[{"text":"ask me"}]},{"message_id":"5529cd21-3fe9-4c02-977e-b49fefa182f3.2","role":"agent","parts":[{"text":"Which one?"}]}],"created_at":1794800328620971,"updated_at":1794800328628669,"version":9,"priority":3,"queued":true,"hidden":false,"deadline":null,"artifacts":[],"receipts":[["queued",1794800328620971,"journal",""],["submitted",1794800328623978,"script","rule 2"],["turn_started",1794800328624013,"script","rule 2"],["answered",1794800328624046,"driver","the agent asked for input"],["canceled",1794800328628669,"journal","canceled by request"]],"reason":"canceled","note":"canceled by request","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(7,16,'{"id":"bdaf4963-45f0-4411-84ce-5d2044a7d007","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"c629298f-2fc9-4d0d-9db5-6c1aa04ba90d","scope":"local","dialect":"a2a_v1","state":"completed","history":[{"message_id":"m-7","role":"user","parts":[{"text":"ask me"}]},{"message_id":"bdaf4963-45f0-4411-84ce-5d2044a7d007.2","role":"agent","parts":[{"text":"Which one?"}]},{"message_id":"m-8","role":"user","parts":[{"text":"the first"}]}],"created_at":1794800328632834,"updated_at":1794800328655585,"version":16,"priority":3,"queued":true,"hidden":false,"deadline":null,"artifacts":[{"artifact_id":"bdaf4963-answer","parts":[{"text":"you chose the first"}],"name":"answer","metadata":{"source":"script","inferred":false}}],"receipts":[["queued",1794800328632834,"journal",""],["submitted",1794800328651904,"script","rule 2"],["turn_started",1794800328651946,"script","rule 2"],["answered",1794800328651983,"driver","the agent asked for input"],["queued",1794800328654550,"journal",""],["submitted",1794800328655535,"script","the steps after the question"],["turn_started",1794800328655560,"script","the steps after the question"],["answered",1794800328655585,"script","the turn ended"]],"metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(8,7,'{"id":"796032d8-424b-4891-beb8-0035e737eee3","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"88c700d7-145a-4647-8acc-6c4240ef7315","scope":"local","dialect":"a2a_v1","state":"input_required","history":[{"message_id":"m-9","role":"user","parts":[{"text":"ask me"}]},{"message_id":"796032d8-424b-4891-beb8-0035e737eee3.2","role":"agent","parts":[{"text":"Which one?"}]}],"created_at":1794800328660411,"updated_at":1794800328663592,"version":7,"priority":3,"queued":true,"hidden":false,"deadline":null,"artifacts":[],"receipts":[["queued",1794800328660411,"journal",""],["submitted",1794800328663544,"script","rule 2"],["turn_started",1794800328663568,"script","rule 2"],["answered",1794800328663592,"driver","the agent asked for input"]],"note":"Which one?","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(9,7,'{"id":"e314b98d-507c-470d-b954-5be32d6c1112","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"43ff3a59-bfb5-4bd2-b9da-3235b39f3cf8","scope":"local","dialect":"a2a_v1","state":"auth_required","history":[{"message_id":"m-10","role":"user","parts":[{"text":"log in"}]},{"message_id":"e314b98d-507c-470d-b954-5be32d6c1112.2","role":"agent","parts":[{"text":"Show your token."}]}],"created_at":1794800328666575,"updated_at":1794800328667853,"version":7,"priority":3,"queued":true,"hidden":false,"deadline":null,"artifacts":[],"receipts":[["queued",1794800328666575,"journal",""],["submitted",1794800328667812,"script","rule 3"],["turn_started",1794800328667830,"script","rule 3"],["answered",1794800328667853,"driver","the agent asked for input"]],"note":"Show your token.","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(10,7,'{"id":"1c9c6d10-86ec-4de1-a10e-debad66eb1bb","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"a89eff44-f685-4603-9b0d-b0b366059034","scope":"local","dialect":"a2a_v0_3","state":"completed","history":[{"message_id":"m-11","role":"user","parts":[{"text":"by 0.3"}]}],"created_at":1794800328671015,"updated_at":1794800328671030,"version":7,"priority":3,"queued":true,"hidden":false,"deadline":null,"artifacts":[{"artifact_id":"1c9c6d10-answer","parts":[{"text":"by 0.3"}],"name":"answer","metadata":{"source":"script","inferred":false}}],"receipts":[["queued",1794800328671015,"journal",""],["submitted",1794800328671030,"script","default"],["turn_started",1794800328671030,"script","default"],["answered",1794800328671030,"script","the turn ended"]],"metadata":{"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
INSERT INTO "snapshots" VALUES(12,5,'{"id":"11598683-8b4a-4812-a5a5-ad673ef2b294","agent_id":"synapse-scripted-8180","inbox":"ada","context_id":"1e2029b5-037b-4af7-98fb-58dd727b058d","scope":"local","dialect":"a2a_v1","state":"working","history":[{"message_id":"m-12","role":"user","parts":[{"text":"wait"}]}],"created_at":1794800328675056,"updated_at":1794800328676156,"version":5,"priority":3,"queued":true,"hidden":false,"deadline":null,"artifacts":[],"receipts":[["queued",1794800328675056,"journal",""],["submitted",1794800328676122,"script","rule 7"],["turn_started",1794800328676139,"script","rule 7"]],"note":"working on it","metadata":{"request":{"user":"ada"},"sender":{"sender_id":"user","sender_type":"user","sender_endpoint":""},"sender_verified":false}}');
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
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    inbox TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    context_id TEXT NOT NULL,
    parent_id TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    version INTEGER NOT NULL,
    hidden INTEGER NOT NULL
);
INSERT INTO "tasks" VALUES(1,'30cdb003-5ac0-4178-b380-403ca2531508','ada','synapse-scripted-8180','local','02057c80-5249-4b93-a887-c08c05a63be6','','completed',1794800328530483,1794800328530534,13,0);
INSERT INTO "tasks" VALUES(2,'1b89e75f-ba0c-45ae-b9d6-e839dc51b313','ada','synapse-scripted-8180','local','16279fb6-4143-4d1b-9133-99c3d00f587f','','completed',1794800328556522,1794800328556574,7,0);
INSERT INTO "tasks" VALUES(3,'8a1bfc62-63c3-4f83-9026-25f73e2227f2','ada','synapse-scripted-8180','local','ef98f06d-9867-44c2-b3a8-505425f29e51','','failed',1794800328569016,1794800328569055,6,0);
INSERT INTO "tasks" VALUES(4,'385cd4bb-ccb0-47e1-b8a4-3676010a8f37','ada','synapse-scripted-8180','local','c5e1b251-8e2a-414c-b74b-f8d7ca87f951','','rejected',1794800328589017,1794800328589059,6,0);
INSERT INTO "tasks" VALUES(5,'202c198b-6f10-4272-bd00-6e0d4121a0c1','ada','synapse-scripted-8180','local','77c5be28-ad60-4afa-aefe-f702df945cb5','','completed',1794800328598872,1794800328598908,7,0);
INSERT INTO "tasks" VALUES(6,'5529cd21-3fe9-4c02-977e-b49fefa182f3','ada','synapse-scripted-8180','local','520af07b-022e-4471-84d8-f17aa20c7cab','','canceled',1794800328620971,1794800328628669,9,0);
INSERT INTO "tasks" VALUES(7,'bdaf4963-45f0-4411-84ce-5d2044a7d007','ada','synapse-scripted-8180','local','c629298f-2fc9-4d0d-9db5-6c1aa04ba90d','','completed',1794800328632834,1794800328655585,16,0);
INSERT INTO "tasks" VALUES(8,'796032d8-424b-4891-beb8-0035e737eee3','ada','synapse-scripted-8180','local','88c700d7-145a-4647-8acc-6c4240ef7315','','input_required',1794800328660411,1794800328663592,7,0);
INSERT INTO "tasks" VALUES(9,'e314b98d-507c-470d-b954-5be32d6c1112','ada','synapse-scripted-8180','local','43ff3a59-bfb5-4bd2-b9da-3235b39f3cf8','','auth_required',1794800328666575,1794800328667853,7,0);
INSERT INTO "tasks" VALUES(10,'1c9c6d10-86ec-4de1-a10e-debad66eb1bb','ada','synapse-scripted-8180','local','a89eff44-f685-4603-9b0d-b0b366059034','','completed',1794800328671015,1794800328671030,7,0);
INSERT INTO "tasks" VALUES(11,'1b92a7ad-29ab-42c3-ba66-35c2eb3325f4','ada','synapse-scripted-8180','local','224740a4-a508-4165-aba8-0d745f095054','','submitted',1794800328673686,1794800328673686,1,0);
INSERT INTO "tasks" VALUES(12,'11598683-8b4a-4812-a5a5-ad673ef2b294','ada','synapse-scripted-8180','local','1e2029b5-037b-4af7-98fb-58dd727b058d','','working',1794800328675056,1794800328676156,5,0);
INSERT INTO "tasks" VALUES(13,'2191c0ab-0eb9-4b8a-8a13-5d7913a4c0d6','ada','synapse-scripted-8180','local','47cde993-6886-4eea-bddb-1f87c5ba0eab','','submitted',1794800328729614,1794800328729614,1,0);
CREATE UNIQUE INDEX events_by_task ON events (task_id, version);
CREATE INDEX tasks_by_parent ON tasks (parent_id) WHERE parent_id <> '';
CREATE INDEX tasks_open ON tasks (inbox, created_at)
WHERE state IN ('submitted', 'working', 'input_required', 'auth_required');
CREATE INDEX pushes_open ON pushes (inbox, number) WHERE is_open = 1;
CREATE INDEX deliveries_by_time ON deliveries (at);
CREATE INDEX tasks_by_inbox ON tasks (inbox, updated_at, number, hidden, scope, state);
CREATE INDEX tasks_by_change ON tasks (updated_at, number, hidden, scope, state);
CREATE INDEX tasks_by_context ON tasks (context_id);
CREATE TRIGGER task_opened AFTER INSERT ON tasks WHEN NEW.hidden = 0 BEGIN
    INSERT INTO task_counts VALUES (NEW.inbox, NEW.scope, NEW.state, 1)
    ON CONFLICT DO UPDATE SET tasks = tasks + 1;
END;
CREATE TRIGGER task_moved AFTER UPDATE OF state, hidden ON tasks
WHEN OLD.state <> NEW.state OR OLD.hidden <> NEW.hidden BEGIN
    UPDATE task_counts SET tasks = tasks - 1
    WHERE inbox = OLD.inbox AND scope = OLD.scope AND state = OLD.state AND OLD.hidden = 0;
    INSERT INTO task_counts SELECT NEW.inbox, NEW.scope, NEW.state, 1 WHERE NEW.hidden = 0
    ON CONFLICT DO UPDATE SET tasks = tasks + 1;
END;
CREATE TRIGGER task_pruned AFTER DELETE ON tasks WHEN OLD.hidden = 0 BEGIN
    UPDATE task_counts SET tasks = tasks - 1
    WHERE inbox = OLD.inbox AND scope = OLD.scope AND state = OLD.state;
END;
CREATE INDEX tasks_by_agent ON tasks (agent_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',92);
INSERT INTO "sqlite_sequence" VALUES('pushes',2);
COMMIT;
PRAGMA application_id = 1398361665;
PRAGMA user_version = 3;
