// The live layer of every page. Without it the pages show and do the same, only not by themselves.
import { follow } from "./live.js";
import { listen } from "./keys.js";
import { tick } from "./times.js";
import { sendQuietly } from "./forms.js";

tick();
listen();
sendQuietly();
follow();
document.documentElement.dataset.ready = "";
