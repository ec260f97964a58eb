// Keeps a page up to date: the server sends what is in <main> whenever that changes, and what differs is changed in place, so
// that focus, selection, open details and scroll positions stay. Without this script pages are complete, and can be reloaded.
"use strict";
(() => {
  const main = document.getElementById("main");
  const status = document.getElementById("live");
  const view = main && main.dataset.view;
  document.documentElement.dataset.script = "on";
  if (!view || !window.EventSource) return;

  let events = null;
  let held = null;

  const say = (text) => {
    if (status.textContent !== text) status.textContent = text;
  };

  const isSelecting = () => {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && main.contains(selection.anchorNode);
  };

  // What the user has done to an element, and the server does not know.
  const isKept = (element, name) =>
    (element.nodeName === "DETAILS" && name === "open") ||
    (element.nodeName === "INPUT" && name === "value") ||
    (element.nodeName === "OPTION" && name === "selected");

  const key = (node) => (node.nodeType === Node.ELEMENT_NODE && node.id) || null;

  function attributes(old, fresh) {
    for (const { name, value } of fresh.attributes) {
      if (!isKept(old, name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!isKept(old, name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
  }

  function text(old, fresh) {
    if (old.data === fresh.data) return;
    // What is only longer is appended to.
    if (old.data && fresh.data.startsWith(old.data)) old.appendData(fresh.data.slice(old.data.length));
    else old.data = fresh.data;
  }

  function morph(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType === Node.TEXT_NODE) return text(old, fresh);
    if (old.nodeType !== Node.ELEMENT_NODE) return;
    const isFollowed = old.dataset && old.dataset.follow === "end";
    const isAtEnd = isFollowed && old.scrollTop + old.clientHeight >= old.scrollHeight - 4;
    attributes(old, fresh);
    children(old, fresh);
    if (isAtEnd) old.scrollTop = old.scrollHeight;
  }

  // Elements with an id are the same where that is; others where their place and name are.
  function children(old, fresh) {
    const byId = new Map();
    for (const child of old.children) if (key(child)) byId.set(child.id, child);
    let at = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      const id = key(child);
      const same = id ? byId.get(id) : at && !key(at) && at.nodeName === child.nodeName ? at : null;
      if (same && same.nodeName === child.nodeName) {
        if (same === at) at = at.nextSibling;
        else old.insertBefore(same, at);
        byId.delete(id);
        morph(same, child);
      } else {
        old.insertBefore(child, at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function show(html) {
    if (isSelecting()) {
      held = html;
      return;
    }
    held = null;
    const fresh = document.createElement("template");
    fresh.innerHTML = html;
    children(main, fresh.content);
    document.documentElement.dataset.live = "on";
    say("Up to date.");
  }

  function follow() {
    if (events || document.hidden) return;
    events = new EventSource("/events?view=" + encodeURIComponent(view));
    events.addEventListener("main", (event) => show(event.data));
    events.addEventListener("error", () => {
      const isOver = events && events.readyState === EventSource.CLOSED;
      say(isOver ? "Not up to date: reload the page." : "Not up to date: the node does not answer.");
    });
  }

  document.addEventListener("selectionchange", () => {
    if (held !== null && !isSelecting()) show(held);
  });
  // Only while the page can be seen.
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) return follow();
    if (events) events.close();
    events = null;
    say("Not up to date while the page is hidden.");
  });
  for (const output of document.querySelectorAll('[data-follow="end"]')) output.scrollTop = output.scrollHeight;
  follow();
})();
