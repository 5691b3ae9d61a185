// The live layer of every page. Without it the pages show and do the same, only not by themselves.
import { follow } from "./live.js";
import { listen } from "./keys.js";
import { tick } from "./times.js";
import { sendQuietly } from "./forms.js";
import { attend } from "./said.js";
import { keepMenu } from "./menu.js";
import { offerCopies } from "./copy.js";

tick();
listen();
sendQuietly();
keepMenu();
attend();
offerCopies();
follow();
document.documentElement.dataset.ready = "";
