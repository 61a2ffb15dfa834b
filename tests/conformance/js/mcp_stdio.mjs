// The tools of an agent's launch, used by the official MCP SDK for TypeScript, unmodified. It prints what it saw as JSON.
//
//     node mcp_stdio.mjs 1|2 legacy|modern COMMAND…
//
// Run it where the SDKs are installed: see scripts/clients.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [version, mode, command, ...args] = process.argv.slice(2);

// The SDKs are installed elsewhere, so they are looked for from where this is run and not from where it lies.
const packages = createRequire(pathToFileURL(`${process.cwd()}/package.json`));
const load = (name) => import(pathToFileURL(packages.resolve(name)));

const named = { name: "conformance", version: "1" };
const { Client, StdioClientTransport } =
  version === "1"
    ? {
        ...(await load("@modelcontextprotocol/sdk/client/index.js")),
        ...(await load("@modelcontextprotocol/sdk/client/stdio.js")),
      }
    : { ...(await load("@modelcontextprotocol/client")), ...(await load("@modelcontextprotocol/client/stdio")) };

const wanted = version === "1" ? {} : { versionNegotiation: { mode: mode === "modern" ? "auto" : "legacy" } };
const client = new Client(named, wanted);
const transport = new StdioClientTransport({ command, args, env: process.env });
const seen = {};
const setVersion = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (given) => setVersion?.((seen.protocol = given)) ?? (seen.protocol = given);
await client.connect(transport);
seen.instructions = client.getInstructions();
seen.tools = (await client.listTools()).tools.map((tool) => tool.name);

async function call(name, args = {}, onprogress = undefined) {
  const options = onprogress ? { onprogress } : {};
  const request = { name, arguments: args };
  const result =
    version === "1" ? await client.callTool(request, undefined, options) : await client.callTool(request, options);
  return { error: Boolean(result.isError), blocks: result.content.map((block) => block.text) };
}

async function refused(act) {
  try {
    await act();
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
  return "";
}

seen.agents = await call("agents");
seen.sent = await call("send", { to: "tck", text: "only told" });
seen.progress = [];
const slow = call("send", { to: "tck", text: "slow one", wait: "answer" }, (one) => seen.progress.push(one.progress));
seen.answered = await call("send", { to: "tck", text: "asked", wait: "answer", timeout: 30 });
seen.slow = await slow;
seen.late = await call("send", { to: "tck", text: "never", wait: "answer", timeout: 1 });
const task = seen.late.blocks[0].split(/\s+/)[1].replace(/[:,]$/, "");
seen.status = await call("status", { of: task });
seen.canceled = await call("cancel", { task });
seen["nothing open"] = await call("reply", { text: "no" });
seen.wrong = await call("send", { to: "tck", text: 7 });
seen.nobody = await call("send", { to: "nobody", text: "hello" });
seen.unknown = await refused(() => call("approve", { task }));
await client.close();
console.log(JSON.stringify(seen));
process.exit(0);
