// A browser does not start a Worker from file://. This one runs the script in a hidden frame, so
// that the search works from disk.
(() => {
  if (location.protocol !== "file:") return;
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow;
      const page = frame.contentDocument;
      const waiting = [];
      let ready = false;
      const tell = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const give = (data) => inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      inside.postMessage = (data) => setTimeout(() => tell(data));
      inside.importScripts = (...urls) =>
        Promise.all(
          urls.map(
            (source) =>
              new Promise((done, failed) => {
                const script = page.createElement("script");
                script.src = source;
                script.onload = done;
                script.onerror = failed;
                page.body.appendChild(script);
              })
          )
        );
      this.postMessage = (data) => (ready ? setTimeout(() => give(data)) : waiting.push(data));
      this.terminate = () => frame.remove();
      inside.importScripts(new URL(url, location.href).href).then(() => {
        ready = true;
        waiting.forEach((data) => setTimeout(() => give(data)));
      });
    }
  };
})();
