// A conversation by the official JavaScript SDK, unmodified. It prints what it saw as JSON.
//
//     node conversation.mjs 1.0|0.3 URL JSONRPC|HTTP+JSON streaming|plain script|dummy
//
// Run it where the SDKs are installed: see package.json.

import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [version, url, transport, mode, agent] = process.argv.slice(2);
const streaming = mode === "streaming";

// The SDKs are installed elsewhere, so they are looked for from where this is run and not from where it lies.
const packages = createRequire(pathToFileURL(`${process.cwd()}/package.json`));
const load = (name) => import(pathToFileURL(packages.resolve(name)));

const STATES = ["", "submitted", "working", "completed", "failed", "canceled", "input-required", "rejected"];

/** What 1.0 calls things. */
const current = {
  name: "a2a-current",
  textOf: (part) => part.content.value,
  stateOf: (task) => STATES[task.status.state],
  message: (text, cue, more) => ({
    tenant: "",
    message: {
      messageId: `${cue}-${randomUUID()}`,
      role: 1,
      parts: [{ content: { $case: "text", value: text }, metadata: undefined, filename: "", mediaType: "" }],
      contextId: "",
      taskId: "",
      metadata: undefined,
      extensions: [],
      referenceTaskIds: [],
      ...more,
    },
    configuration: undefined,
    metadata: undefined,
  }),
  task: (id) => ({ tenant: "", id }),
  kindOf: (event) => ({ statusUpdate: "status-update", artifactUpdate: "artifact-update" })[event.payload.$case] ?? event.payload.$case,
  valueOf: (event) => event.payload.value,
};

/** What 0.3 calls them. */
const former = {
  name: "a2a-former",
  textOf: (part) => part.text,
  stateOf: (task) => task.status.state,
  message: (text, cue, more) => ({
    message: {
      kind: "message",
      messageId: `${cue}-${randomUUID()}`,
      role: "user",
      parts: [{ kind: "text", text }],
      ...more,
    },
  }),
  task: (id) => ({ id }),
  kindOf: (event) => event.kind,
  valueOf: (event) => event,
};

const words = version === "1.0" ? current : former;

async function connect() {
  const { ClientFactory, ClientFactoryOptions, JsonRpcTransportFactory, RestTransportFactory } = await load(`${words.name}/client`);
  const only = transport === "JSONRPC" ? new JsonRpcTransportFactory() : new RestTransportFactory();
  const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { transports: [only] });
  return new ClientFactory({ ...options, transports: [only] }).createFromUrl(`${url}/`); // without the slash the last name is taken away
}

/** The events of a message; without streaming the answer alone. */
async function said(client, text, cue = "plain", more = {}) {
  const request = words.message(text, cue, more);
  if (!streaming) {
    const answer = await client.sendMessage(request);
    return [{ kind: "status" in answer ? "task" : "message", value: answer }];
  }
  const events = [];
  for await (const event of client.sendMessageStream(request)) {
    events.push({ kind: words.kindOf(event), value: words.valueOf(event) });
  }
  return events;
}

async function ended(client, ...request) {
  const [first] = await said(client, ...request);
  return client.getTask(words.task(first.value.id));
}

async function refused(act) {
  try {
    await act();
  } catch (error) {
    return `${error.name} ${error.message} ${error.cause?.message ?? ""}`;
  }
  return "";
}

/** With the agent of docs/examples/conformance.toml. */
async function script(client) {
  const asked = await ended(client, "first", "tck-multi-turn");
  const done = await ended(client, "second", "plain", { taskId: asked.id, contextId: asked.contextId });
  const streamed = await said(client, "go", "tck-stream-artifact-chunked");
  const [direct] = await said(client, "hi", "tck-message-response");
  return {
    asked: [words.stateOf(asked), words.textOf(asked.status.message.parts[0])],
    done: [words.stateOf(done), words.textOf(done.artifacts[0].parts[0])],
    history: done.history.map((one) => words.textOf(one.parts[0])),
    kinds: streamed.map((event) => event.kind),
    direct: words.textOf(direct.value.parts[0]),
    unknown: await refused(() => client.getTask(words.task("no-such-task"))),
    finished: await refused(() => said(client, "more", "plain", { taskId: done.id })),
    "not cancelable": await refused(() => client.cancelTask(words.task(done.id))),
  };
}

/** With the built-in agent, on a terminal. */
async function dummy(client) {
  const task = await ended(client, "hello there");
  return { state: words.stateOf(task), text: words.textOf(task.artifacts.at(-1).parts[0]) };
}

const client = await connect();
console.log(JSON.stringify(await (agent === "script" ? script : dummy)(client)));
