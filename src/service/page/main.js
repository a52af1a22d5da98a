/* What a person does, and what happens meanwhile. */

let knowsMethods, isWatching;

const mayChange = () => document.body.classList.contains('writable');

/* Finds out which controls would succeed. */
async function learn() {
	// first, as a token may be given while this asks
	knowsMethods = true;
	const {allow, isChallenged} = await ask('OPTIONS', base);
	const {classList} = document.body;
	classList.remove('writable', 'guarded', 'read-only');
	classList.add(!allow.includes('PUT') ? 'read-only' : isChallenged ? 'guarded' : 'writable');
	if (!allow.includes('PUT')) {
		const {json} = await ask('GET', base.replace(/colors$/, 'health'));
		if (json.follows) at.reads.textContent = `Follows ${json.follows}, read-only`;
	}
}

/* Looks every second while the page is visible. */
async function watch() {
	if (isWatching) return;
	isWatching = true;
	while (!document.hidden) {
		try {
			if (!knowsMethods) await learn();
			await look();
			sayBack();
		} catch ({message, isPrivate}) {
			say(at.away, isPrivate ? 'These colors are private.' : `${message} – trying again…`);
			knowsMethods = false;
		}
		await new Promise(resolve => setTimeout(resolve, 1000));
	}
	isWatching = false;
}

/* Takes away what was said of a service that did not answer. */
function sayBack() {
	if (at.refusal.textContent === AWAY) say(at.refusal, '');
	if (at.told.textContent === AWAY || at.away.textContent.startsWith(AWAY)) tell('The service is back.');
	say(at.away, '');
}

/* Does something that may fail; why is shown in the open color, while it is still `mine`. */
async function attempt(action, mine) {
	try {
		await action();
	} catch ({message}) {
		mine && isOpenFor(mine) ? say(at.refusal, message) : tell(message);
	}
}

/* Has a token given, until it is one that the service accepts, or the person declines. */
async function give() {
	while (await askForToken(at.away.textContent ? 'GET' : 'POST')) {
		await learn();
		if (!document.body.classList.contains('guarded')) return look();
	}
}

/* Copies a text and says so, at its place for a moment. */
async function copy(text, place) {
	try {
		await navigator.clipboard.writeText(text);
	} catch {
		// without TLS there is no clipboard but this
		const area = element('textarea', text);
		const focused = document.activeElement;
		(focused.closest('dialog') ?? document.body).append(area);
		area.select();
		const isCopied = document.execCommand('copy');
		area.remove();
		focused.focus({preventScroll: true});
		if (!isCopied) throw new Error('The browser did not allow to copy');
	}
	place.classList.add('copied');
	// a new text, even if it is the same, is read out
	(at.opened.open ? at.heard : at.said).textContent = `Copied ${called(text)}`;
	setTimeout(() => place.classList.remove('copied'), 1500);
}

/* Sort and search are in the address, so that a view can be shared. */
function readAddress() {
	const view = new URLSearchParams(location.hash.slice(1));
	at.query.value = view.get('q') ?? '';
	chosen = [...at.order.options].find(({value}) => value === view.get('sort'))?.value;
	if (listTag) arrange();
}

function writeAddress() {
	const view = new URLSearchParams();
	if (chosen) view.set('sort', chosen);
	if (at.query.value) view.set('q', at.query.value);
	history.replaceState(null, '', location.pathname + location.search + (view.size ? `#${view}` : ''));
}

function search(text) {
	at.query.value = text;
	scrollTo({top: 0, behavior: 'instant'});
	arrange();
	writeAddress();
}

function takeBack() {
	settle();
	attempt(undo);
}

at.mark.src = at.icon.href;
at.list.onclick = ({target}) => {
	const tile = target.closest('li');
	if (tile && !wasDragged) open(tile.entry);
};

at.list.onkeydown = event => {
	const steps = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -Infinity, End: Infinity};
	const {key, repeat, altKey, target} = event;
	const tile = target.closest('li');
	if (event.ctrlKey || event.metaKey || altKey && !(key in steps && mayChange())) return;
	const {entry} = tile;
	current = shown.indexOf(entry);
	if (key in steps) altKey ? nudge(entry, steps[key]) : focusOn(current + steps[key]);
	else if (key === 'c') attempt(() => copy(entry.value, tile));
	else if (!/^(F2|Delete)$/.test(key) || !mayChange()) return;
	// a key that is held is one press
	else if (!repeat) key === 'F2' ? edit(entry) : attempt(() => remove(entry));
	event.preventDefault();
};

onkeydown = event => {
	const {key, target} = event;
	if (key === 'Escape' && drag?.isHeld) return release(true);
	if (event.repeat || event.altKey || target.closest('input, select') || document.querySelector('dialog[open]')) return;
	const isControl = event.ctrlKey || event.metaKey;
	if (isControl && key === 'z' && !event.shiftKey && (done.length || draft)) takeBack();
	else if (isControl) return;
	else if (key === '/') at.query.select();
	else return;
	event.preventDefault();
};

at.query.oninput = () => search(at.query.value);
at.order.onchange = () => {
	chosen = at.order.value;
	writeAddress();
	glide(arrange);
};
onhashchange = readAddress;
at.add.onclick = () => edit();
at.way.onclick = () => {
	if (!at.query.value) return edit();
	search('');
	at.query.focus();
};
at.give.onclick = () => attempt(give);
at.asks.onclick = () => at.help.showModal();
at.takeBack.onclick = takeBack;
at.undo.onclick = takeBack;
at.dismiss.onclick = () => tell();
at.menu.onclick = () => at.menu.hidePopover();
for (const button of document.querySelectorAll('.close')) button.onclick = () => button.closest('dialog').close();

onresize = () => entries.length && arrange();
new ResizeObserver(onresize).observe(at.header);
onscroll = () => entries.length > ALL && draw();
onbeforeprint = onafterprint = ({type}) => {
	isAll = type === 'beforeprint';
	draw();
};
document.onvisibilitychange = watch;
readAddress();
watch();
