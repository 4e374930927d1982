// Reads server-sent events from the text of a stream. Pure: the text is an argument.

// Longest event, in characters. A longer one ends the stream with an error.
export const EVENT_MAX = 4 << 20;

export class EventReader {
  // `onEvent` is called with the name and the data of each event.
  constructor(onEvent) {
    this.onEvent = onEvent;
    this.rest = "";
    this.name = "";
    this.data = [];
    this.size = 0;
    // Milliseconds before a new connection, as the stream says; null if it says nothing.
    this.retry = null;
  }

  // Reads the next piece of the stream.
  push(text) {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    for (const line of lines) this.line(line);
    if (this.rest.length + this.size > EVENT_MAX) throw new Error("an event of /live is too large");
  }

  line(line) {
    if (line === "") {
      if (this.data.length > 0) this.onEvent(this.name || "message", this.data.join("\n"));
      [this.name, this.data, this.size] = ["", [], 0];
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    this.size += line.length;
    if (field === "event") this.name = value;
    else if (field === "data") this.data.push(value);
    else if (field === "retry" && /^\d{1,6}$/.test(value)) this.retry = Number(value);
  }
}
