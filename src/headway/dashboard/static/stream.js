// Yields the server-sent events of an endless response in order.
export async function* messages(response) {
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  try {
    for (let rest = ""; ; ) {
      const { value, done } = await reader.read();
      if (done) return;
      const whole = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = whole.pop();
      for (const one of whole) yield { id: field(one, "id"), event: field(one, "event"), data: field(one, "data") };
    }
  } finally {
    reader.cancel().catch(() => {}); // closes the connection when the reader stops
  }
}

const field = (message, name) => new RegExp(`^${name}: (.*)$`, "m").exec(message)?.[1] ?? null;
