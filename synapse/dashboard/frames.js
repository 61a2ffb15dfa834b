/**
 * The binary frames of the terminals, as `synapse/attach/terminal_frames.py` describes them:
 *
 *   kind (1) | terminal (4) | offset (8) | payload            numbers are big endian
 */

/** What a frame is. */
export const Kind = Object.freeze({
  OPEN: 1, INPUT: 2, RESIZE: 3, CREDIT: 4, CLOSE: 5, TAKE: 6, PING: 7,
  SNAPSHOT: 16, OUTPUT: 17, SIZE: 18, ROLE: 19, EXITED: 20, ERROR: 21, LOST: 22, PONG: 23,
});

const HEADER = 13;
const NEWLINE = 10;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/**
 * Returns a frame.
 *
 * @param {number} kind one of `Kind`
 * @param {number} terminal
 * @param {Uint8Array|object|null} [payload] bytes, or an object that is sent as JSON
 * @param {number} [offset]
 * @returns {Uint8Array}
 */
export function encodeFrame(kind, terminal, payload = null, offset = 0) {
  const bytes = payload === null ? new Uint8Array() : payload instanceof Uint8Array ? payload : encoder.encode(JSON.stringify(payload));
  const frame = new Uint8Array(HEADER + bytes.length);
  const header = new DataView(frame.buffer);
  header.setUint8(0, kind);
  header.setUint32(1, terminal);
  header.setBigUint64(5, BigInt(offset));
  frame.set(bytes, HEADER);
  return frame;
}

/**
 * Returns the parts of a frame. Raises RangeError when it is too short to be one.
 *
 * @param {ArrayBuffer} data
 * @returns {{kind: number, terminal: number, offset: number, payload: Uint8Array}}
 */
export function decodeFrame(data) {
  const header = new DataView(data);
  return {
    kind: header.getUint8(0),
    terminal: header.getUint32(1),
    offset: Number(header.getBigUint64(5)),
    payload: new Uint8Array(data, HEADER),
  };
}

/**
 * Returns the object in a payload of JSON. Raises SyntaxError.
 *
 * @param {Uint8Array} payload
 */
export function jsonIn(payload) {
  return JSON.parse(decoder.decode(payload));
}

/**
 * Returns the parts of a snapshot: its object, and the bytes that rebuild the terminal. Raises SyntaxError.
 *
 * @param {Uint8Array} payload
 * @returns {{head: {columns: number, rows: number, run: string}, data: Uint8Array}}
 */
export function snapshotIn(payload) {
  const end = payload.indexOf(NEWLINE);
  return { head: jsonIn(payload.subarray(0, end)), data: payload.subarray(end + 1) };
}

/**
 * Returns the pieces of a text that was typed or pasted, none larger than a frame may be.
 *
 * @param {string} text
 * @param {number} [most] bytes
 * @returns {Uint8Array[]}
 */
export function inputPieces(text, most = 32 * 1024) {
  const bytes = encoder.encode(text);
  const pieces = [];
  for (let begin = 0; begin < bytes.length; begin += most) pieces.push(bytes.subarray(begin, begin + most));
  return pieces;
}
