// The live layer of every page. Without script the pages have the same content and actions, without refresh.
import { follow } from "./live.js";
import { listen } from "./shortcuts.js";
import { tick } from "./times.js";
import { sendQuietly } from "./forms.js";
import { attend } from "./flash.js";
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
