/**
 * Requests to the gateway that served the page. A session needs two secrets: the cookie, which the browser sends and
 * no script can read, and the token, which only pages of this origin can read.
 */

const TOKEN = "synapse.token";

/** What the gateway refused or failed at. `status` is 0 when the gateway could not be reached. */
export class ApiError extends Error {
  /**
   * @param {number} status the HTTP status
   * @param {{code?: string, message?: string, hint?: string, answered_by?: string}} wire
   */
  constructor(status, wire) {
    super(wire.message || `the gateway answered ${status}`);
    this.name = "ApiError";
    this.status = status;
    this.code = wire.code ?? "";
    this.hint = wire.hint ?? "";
    this.answeredBy = wire.answered_by ?? "";
  }
}

class Api {
  /** Is called with the error when the session has ended; set by the page. */
  onSessionEnd = (_error) => {};

  get token() {
    return localStorage.getItem(TOKEN) ?? "";
  }

  set token(value) {
    if (value) localStorage.setItem(TOKEN, value);
    else localStorage.removeItem(TOKEN);
  }

  /**
   * Returns the JSON of the answer. Raises ApiError.
   *
   * @param {string} path below the origin, with its query
   * @param {{signal?: AbortSignal}} [options]
   */
  async get(path, options) {
    return (await this.request("GET", path, undefined, options)).json();
  }

  /**
   * Posts `body` as JSON and returns the JSON of the answer. Raises ApiError.
   *
   * @param {string} path
   * @param {object} [body]
   * @param {{signal?: AbortSignal}} [options]
   */
  async post(path, body = {}, options) {
    return (await this.request("POST", path, body, options)).json();
  }

  /**
   * Deletes what the path names. Raises ApiError.
   *
   * @param {string} path
   */
  async delete(path) {
    await this.request("DELETE", path);
  }

  /**
   * Returns the bytes of a file. An `<img>` cannot send the token: show `URL.createObjectURL(blob)`.
   *
   * @param {string} path
   * @param {{signal?: AbortSignal}} [options]
   */
  async blob(path, options) {
    return (await this.request("GET", path, undefined, options)).blob();
  }

  /**
   * Yields the events of a server-sent stream until it ends. Raises ApiError when it cannot begin, and an AbortError
   * or TypeError when it breaks.
   *
   * @param {string} path
   * @param {{signal?: AbortSignal, onBytes?: () => void}} [options] `onBytes` is called for everything that arrives
   * @returns {AsyncGenerator<{id: string, event: string, data: any}>}
   */
  async *stream(path, options = {}) {
    const response = await this.request("GET", path, undefined, { ...options, accept: "text/event-stream" });
    options.onBytes?.();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        options.onBytes?.();
        const blocks = (rest + value).split(/\r?\n\r?\n/);
        rest = blocks.pop();
        for (const block of blocks) {
          const event = eventIn(block);
          if (event) yield event;
        }
      }
    } finally {
      reader.cancel().catch(() => {}); // the caller has left: nothing more is of use
    }
  }

  /**
   * Sends a request with the token and returns the response if it is a success. Raises ApiError.
   *
   * @param {string} method
   * @param {string} path
   * @param {object} [body]
   * @param {{signal?: AbortSignal, accept?: string, headers?: Object<string, string>}} [options]
   * @returns {Promise<Response>}
   */
  async request(method, path, body, { signal, accept = "application/json", headers = {} } = {}) {
    const sent = { Accept: accept, ...headers };
    if (this.token) sent["X-Synapse-Token"] = this.token;
    if (body !== undefined) sent["Content-Type"] = "application/json";
    let response;
    try {
      response = await fetch(path, {
        method, signal, headers: sent, cache: "no-store", credentials: "same-origin", redirect: "error",
        body: body === undefined ? undefined : JSON.stringify(body),
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      const hint = "is it running? synapse dashboard";
      throw new ApiError(0, { code: "unreachable", message: "the gateway cannot be reached", hint });
    }
    if (response.ok || response.status === 304) return response;
    const error = new ApiError(response.status, await errorIn(response));
    if (response.status === 401) this.onSessionEnd(error);
    throw error;
  }
}

/** The one connection of the page to its gateway. */
export const api = new Api();

async function errorIn(response) {
  try {
    const { error, ...rest } = await response.json();
    return { ...rest, ...error };
  } catch {
    return {}; // not JSON: a proxy's page says nothing that a person could use here
  }
}

function eventIn(block) {
  const event = { id: "", event: "message", data: null };
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (field === "data") data.push(value);
    else if (field === "event" || field === "id") event[field] = value;
  }
  if (data.length === 0) return null; // a comment, or a bare id
  event.data = JSON.parse(data.join("\n"));
  return event;
}
