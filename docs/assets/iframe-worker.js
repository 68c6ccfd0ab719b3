// Search without a server: a page that is opened from the disk may not start a Worker, so the search script runs in
// a hidden frame with the interface of a Worker. On a web server the browser's own Worker is used.
if (location.protocol === "file:") {
  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow;
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}));
      inside.importScripts = (...urls) => Promise.all(urls.map(load));
      function load(src) {
        return new Promise((done, failed) => {
          const script = inside.document.createElement("script");
          Object.assign(script, {src, onload: done, onerror: failed, async: false});
          inside.document.body.appendChild(script);
        });
      }
      this.ready = load(new URL(url, location));
      this.send = data => inside.dispatchEvent(new inside.MessageEvent("message", {data}));
    }
    postMessage(data) {
      this.ready.then(() => this.send(data));
    }
    terminate() {}
  }
  window.IFrameWorker = window.Worker = FrameWorker;
}
