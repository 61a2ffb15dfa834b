/**
 * The page: signs in, keeps the frame around the views (header, list of agents, banner), routes, handles keys.
 *
 * A view is a module in views/ that exports
 *
 *     export const view = { name, title, wide?, mount(root, context, params) → handle };
 *
 * `title` heads the page's title. `wide` takes the whole width where the list of agents would leave little.
 * `params` is {id, query}: the address `#/tasks/ID?search=x` has the id "ID" (else "") and a URLSearchParams.
 * `handle` is { unmount(), update?(params), keys? }: `unmount` ends all listeners and requests of the view; `update` is
 * called when the address changes within the same view (without it, the view is mounted anew); `keys` maps a key such
 * as "a" to what it does in this view. Elements with the attribute `data-item` are what `j` and `k` step through.
 *
 * `context` is what a view may use:
 *     api, live, session               see api.js, live.js; session = {id, name, actions, expires_at}
 *     navigate(hash), openTask(id), openAgent(id)
 *     announce(text)                   says it to screen readers
 *     notify(text), fail(error)        a line at the bottom of the page that goes by itself; an error stays
 *     can(action)                      whether this session may, and the page is connected
 *     gate(element, action)            keeps the element disabled while `can(action)` is false; returns the element
 *     seen(agentId)                    marks the agent's finished tasks as seen
 *
 * Address → view: #/inbox, #/agents, #/agents/ID, #/flow, #/tasks, #/tasks/ID, #/figures, #/send.
 */

import { api } from "./api.js";
import { ago, clock, fill, h, keyed, refreshTimes } from "./dom.js";
import { Live } from "./live.js";
import { confirmKey, handleKey, showHelp } from "./keys.js";
import { needsOf, rowParts, word } from "./rows.js";

const VIEWS = {
  inbox: () => import("./views/inbox.js"),
  agents: () => import("./views/agents.js"),
  agent: () => import("./views/agent.js"),
  flow: () => import("./views/flow.js"),
  tasks: () => import("./views/tasks.js"),
  task: () => import("./views/task.js"),
  figures: () => import("./views/figures.js"),
  send: () => import("./views/send.js"),
};
const TABS = [["inbox", "Inbox"], ["agents", "Agents"], ["flow", "Flow"], ["tasks", "Tasks"], ["figures", "Figures"]];
const ONE_OF = { agents: "agent", tasks: "task" };
const THEMES = ["auto", "light", "dark"];
