// The tools of a gateway, used by the official MCP SDK for TypeScript, unmodified. It prints what it saw as JSON.
//
//     node mcp_http.mjs 1|2 URL KEY legacy|modern
//
// Run it where the SDKs are installed: see scripts/clients.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [version, url, key, mode] = process.argv.slice(2);

// The SDKs are installed elsewhere, so they are looked for from where this is run and not from where it lies.
const packages = createRequire(pathToFileURL(`${process.cwd()}/package.json`));
const load = (name) => import(pathToFileURL(packages.resolve(name)));

const named = { name: "conformance", version: "1" };
const { Client, StreamableHTTPClientTransport } =
  version === "1"
    ? {
        ...(await load("@modelcontextprotocol/sdk/client/index.js")),
        ...(await load("@modelcontextprotocol/sdk/client/streamableHttp.js")),
      }
    : await load("@modelcontextprotocol/client");

async function connected(secret) {
  const wanted = version === "1" ? {} : { versionNegotiation: { mode: mode === "modern" ? "auto" : "legacy" } };
  const client = new Client(named, wanted);
  const transport = new StreamableHTTPClientTransport(new URL(url), {
    requestInit: { headers: { Authorization: `Bearer ${secret}` } },
  });
  let protocol;
  const setVersion = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (given) => setVersion?.((protocol = given));
  await client.connect(transport);
  return { client, protocol };
}

async function refused(act) {
  try {
    await act();
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
  return "";
}

const seen = {};
const { client, protocol } = await connected(key);
seen.protocol = protocol;
seen.instructions = client.getInstructions();
seen.tools = (await client.listTools()).tools.map((tool) => tool.name);

async function call(name, args = {}, onprogress = undefined) {
  const options = onprogress ? { onprogress } : {};
  const request = { name, arguments: args };
  const result = version === "1" ? await client.callTool(request, undefined, options) : await client.callTool(request, options);
  return { error: Boolean(result.isError), blocks: result.content.map((block) => block.text) };
}

seen.agents = await call("agents");
seen.sent = await call("send", { to: "tck", text: "only told" });
seen.answered = await call("send", { to: "tck", text: "asked", wait: "answer" });
seen.progress = [];
seen.slow = await call("send", { to: "tck", text: "slow one", wait: "answer" }, (one) => seen.progress.push(one.progress));
seen.asks = await call("send", { to: "tck", text: "ask me", wait: "answer" });
seen.late = await call("send", { to: "tck", text: "never", wait: "answer", timeout: 1 });
const task = seen.late.blocks[0].split(/\s+/)[1].replace(/[:,]$/, "");
seen.status = await call("status", { of: task });
seen.canceled = await call("cancel", { task });
seen.wrong = await call("send", { to: "tck", text: 7 });
seen.nobody = await call("send", { to: "nobody", text: "hello" });
seen.unknown = await refused(() => call("reply", { text: "no" }));
await client.close();
seen["no key"] = await refused(() => connected("wrong"));
console.log(JSON.stringify(seen));
process.exit(0);
