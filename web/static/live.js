// Fetch the page again when the ledger has something new, and put its content in place.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const source = new EventSource(document.body.dataset.root + "events");
  const state = { version: null, tag: null, busy: false };

  // Whoever is about to press a button keeps it under their finger, and what is being copied stays.
  function isInUse() {
    const focused = document.activeElement;
    return (focused && focused.closest("main form")) || !window.getSelection().isCollapsed;
  }

  async function refresh() {
    if (state.busy || isInUse()) return;
    state.busy = true;
    try {
      const headers = state.tag ? { "If-None-Match": state.tag } : {};
      const answer = await fetch(location.href, { headers, cache: "no-store" });
      // What takes long to make may be older than what was seen: it is asked for again.
      state.version = Number(answer.headers.get("Vtjobs-Version"));
      if (answer.status === 200) {
        state.tag = answer.headers.get("ETag");
        replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      }
    } catch {
      // The stream of events says by itself that the server is away.
    } finally {
      state.busy = false;
    }
  }

  function replace(page) {
    const old = document.querySelector("main");
    const fresh = page.querySelector("main");
    if (!fresh) return;
    for (const one of old.querySelectorAll("details[open][id]")) {
      const again = fresh.querySelector("#" + CSS.escape(one.id));
      if (again) again.open = true;
    }
    const places = [...old.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    for (const one of old.querySelectorAll("[data-chart]")) {
      if (one.plot) one.plot.destroy();
    }
    old.replaceWith(document.adoptNode(fresh));
    fresh.querySelectorAll(".scroll").forEach((one, number) => (one.scrollLeft = places[number] || 0));
    window.vtjobsDraw();
  }

  source.addEventListener("seen", (event) => {
    const seen = JSON.parse(event.data);
    document.getElementById("link").textContent = "";
    document.getElementById("as-of").textContent = seen.as_of;
    const problems = seen.problems.map((text) => {
      const line = document.createElement("div");
      line.textContent = text;
      return line;
    });
    document.getElementById("problems").replaceChildren(...problems);
    const always = "always" in document.querySelector("main").dataset;
    if (always || state.version !== seen.version) refresh();
  });
  source.addEventListener("error", () => {
    const is_over = source.readyState === EventSource.CLOSED;
    document.getElementById("link").textContent = is_over
      ? "; the server has ended: start it again, and open the address that it prints"
      : "; not connected, trying again";
  });
});
