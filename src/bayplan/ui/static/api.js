// Requests to the server, and the stream of changes. The API is described in docs/ui-api.md.

const ROOT = "api/v1/";

export class ApiError extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** @param {string} path @param {RequestInit} [options] @returns {Promise<any>} */
async function send(path, options) {
  let response;
  try {
    response = await fetch(ROOT + path, options);
  } catch (error) {
    if (/** @type {Error} */ (error).name === "AbortError") throw error;
    throw new ApiError(0, "The server does not respond. Is bayplan still running?");
  }
  if (response.status === 401) location.reload();
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new ApiError(response.status, body.error || `The server answered ${response.status}.`);
  return body;
}

/**
 * @param {string} path
 * @param {Record<string, string | number | null | undefined>} [query]
 * @param {AbortSignal} [signal]
 */
export function get(path, query = {}, signal = undefined) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
  return send(text ? `${path}?${text}` : path, { signal });
}

/** @param {string} path @param {object} body */
export const post = (path, body) =>
  send(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

/** The path of a pod or node. @param {string} key */
export const path = key => key.split("/").map(encodeURIComponent).join("/");

export async function logOut() {
  await fetch("logout", { method: "POST" });
  location.reload();
}

/**
 * The stream of changes. The browser resumes it where it was interrupted.
 * @param {number} after
 * @param {{changes: (batch: any) => void, reset: () => void, state: (connected: boolean) => void}} to
 */
export function follow(after, to) {
  const source = new EventSource(`${ROOT}events?after=${after}`);
  source.addEventListener("changes", event => to.changes(JSON.parse(event.data)));
  source.addEventListener("reset", () => to.reset());
  source.addEventListener("open", () => to.state(true));
  source.addEventListener("error", () => {
    to.state(false);
    // The browser gives up after an error response, such as that of a server that is starting again.
    if (source.readyState === EventSource.CLOSED) setTimeout(() => to.reset(), 1500);
  });
  return source;
}
