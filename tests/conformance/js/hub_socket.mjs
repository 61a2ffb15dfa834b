// A conversation over the hub's WebSocket by the npm package `ws`, unmodified. It prints what it saw as JSON.
//
//     node hub_socket.mjs ws://HOST:PORT/ws KEY
//
// Run it where the package is installed: see package.json.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [address, key] = process.argv.slice(2);
// It is installed elsewhere, so it is looked for from where this is run and not from where it lies.
const { WebSocket } = createRequire(pathToFileURL(`${process.cwd()}/package.json`))("ws");
const TOO_LARGE = 2 ** 20 + 1;

const opened = () => {
  const socket = new WebSocket(address, { headers: { Authorization: `Bearer ${key}` } });
  return new Promise((resolve, reject) => {
    socket.once("error", reject);
    socket.once("open", () => resolve(socket));
  });
};

/** Frames until `enough` of them have come. */
const heard = (socket, enough) => {
  const frames = [];
  return new Promise((resolve) => {
    socket.on("message", (data) => {
      frames.push(JSON.parse(data));
      if (enough(frames)) {
        socket.removeAllListeners("message");
        resolve(frames);
      }
    });
  });
};

const ended = ({ type }) => type === "task.completed" || type === "task.failed";
const say = (socket, content) =>
  socket.send(JSON.stringify({ type: "message", agentId: "weather-agent", message: [{ type: "text", content }] }));

const talking = await opened();
const both = heard(talking, (frames) => frames.filter(ended).length === 2);
say(talking, "the weather");
say(talking, "a storm");
const frames = await both;

const resuming = await opened();
const again = heard(resuming, (known) => ended(known.at(-1)));
resuming.send(JSON.stringify({ type: "subscribe", taskId: frames[0].taskId, after: frames[0].seq }));
const resumed = await again;

const pong = new Promise((resolve) => resuming.once("pong", () => resolve(true)));
resuming.ping();
const answersPings = await pong;
resuming.close();

const closing = new Promise((resolve) => talking.once("close", resolve));
talking.send("x".repeat(TOO_LARGE));
const closed = await closing;

console.log(JSON.stringify({ frames, resumed, answersPings, closed }));
