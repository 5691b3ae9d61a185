// Server-sent events, one after the other, of an answer that does not end by itself.
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
    reader.cancel().catch(() => {}); // whoever stops listening lets the connection go
  }
}

const field = (message, name) => new RegExp(`^${name}: (.*)$`, "m").exec(message)?.[1] ?? null;
