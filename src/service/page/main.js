/* What a person does, and what happens meanwhile. */
const WAIT = 60; // seconds
const BEAT = 5000; // milliseconds, after which a window that waits for all says so again
const QUIET = 600; // milliseconds without another key, after which hits are read out
const HEALTH = 5000; // milliseconds until a copy is asked again whether it is old
const REPLY = 200; // milliseconds in which it answers
let knowsMethods, isWatching;
let caughtUp = Promise.resolve(); // until the list is read that another window has told of
let since, heard = -Infinity; // when this window began to wait for all, and when another was heard to
let isCurrent; // whether the list was asked for since the page is visible, and no request has failed
let isCopy = false, old = ''; // what is said while the service that this one follows is away
let isLeaving; // while history goes back from the address of a color that was closed

/* Whether an element is seen; Safari before 17.4 knows less of it. */
const isSeen = element => element.checkVisibility?.({visibilityProperty: true}) ?? element.getClientRects().length > 0;

const mayChange = () => document.body.classList.contains('writable');

/* Says why nothing can be changed, once that is known. */
function refuse() {
	const {className} = document.body;
	if (className) tell(className === 'guarded' ? 'Changes need a token.' : at.readOnly.textContent.startsWith('Follows') ? 'This is a copy.' : 'This list is read-only.');
}

/* Finds out which controls would succeed. */
async function learn() {
	// first, as a token may be given while this asks
	knowsMethods = true;
	const {allow, isChallenged} = await ask('OPTIONS', base);
	document.body.className = !allow.includes('PUT') ? 'read-only' : isChallenged ? 'guarded' : 'writable';
	draw();
	if (!allow.includes('PUT')) await askHealth();
}

/* A copy says whom it follows, and while that one is away, that it may be old. */
async function askHealth() {
	clearTimeout(askHealth.timer);
	try {
		if (document.hidden) return;
		const {status, json} = await ask('GET', base.replace(/colors$/, 'health'));
		isCopy = !!json.follows;
		if (isCopy) at.readOnly.textContent = `Follows ${json.follows}, read-only`;
		const before = old;
		old = isCopy && status === 503 ? `This copy may be old: ${json.status}` : '';
		if (at.away.textContent === before) say(at.away, old);
	} finally {
		if (isCopy) askHealth.timer = setTimeout(() => askHealth().catch(() => {}), HEALTH);
	}
}

/* Shows each change as it happens, while the page is visible. */
async function watch() {
	isCurrent = false;
	if (isWatching) return;
	isWatching = true;
	let failures = 0;
	while (!document.hidden) {
		if (following.signal.aborted) following = new AbortController();
		const {signal} = following;
		let rest = 0;
		await turn;
		const isWaiting = isCurrent;
		const begun = performance.now();
		try {
			// the list first: the rest is not urgent
			const [before] = await Promise.all([isWaiting ? waitForChange(signal) : readList(0, signal), knowsMethods || learn()]);
			isCurrent = !document.hidden;
			failures = 0;
			// nothing that was said of an outage stays
			if (at.refusal.textContent === AWAY) say(at.refusal, '');
			if (at.told.textContent === AWAY || at.away.textContent.startsWith(AWAY)) tell(BACK);
			say(at.away, old);
			// a long list is not loaded all the time
			if (before) rest = Math.max(listTag === NO_TAG ? 1000 : 200, list.length / 10);
			if (isWaiting) announce(before);
		} catch (error) {
			const {message, isPrivate, isLate} = error;
			if (signal.aborted) continue;
			if (error instanceof TypeError || error instanceof ReferenceError) {
				console.error(error);
				at.needs.hidden = false;
				at.none.hidden = true;
				break;
			}
			isCurrent = false;
			if (isPrivate) {
				// only a token leads to the list, and to ask without one is no use
				say(listTag ? at.away : at.why, 'These colors are private.');
				say(at.way, 'Enter token');
				at.way.className = '';
				if (!listTag) at.way.focus();
				learn().catch(() => {});
				break;
			}
			// a proxy may have ended the wait; the next request tells whether the service is away
			if (!isWaiting || isLate) {
				knowsMethods = false;
				if (at.told.textContent === BACK) tell();
				say(at.away, `${message} – trying again…`);
				rest = Math.min(1000 * 2 ** failures++, 8000);
			}
		}
		// where a proxy does not let the request wait, the list is asked for once a second
		if (isWaiting && !rest) rest = begun + 1000 - performance.now();
		await pause(rest, signal);
	}
	isWatching = false;
}

/* Asks for the list at once, whatever went before. */
function restart() {
	following.abort();
	watch();
}

/* Tells screen readers what others have changed since a list, once for all within five seconds. */
function announce(before) {
	if (before) announce.timer ??= setTimeout(() => {
		announce.timer = undefined;
		const all = Object.entries(atOnce(differencesOf(before, list))).flatMap(([what, some]) => some.map(({name, value}) => `${what} elsewhere: ${called(name)}, ${called(value)}.`));
		speak(all.length === 1 ? all[0] : `Changed elsewhere: ${all.length ? amount(all.length) : 'the order'}. There are ${figure(list.length)} now.`);
	}, 5000);
}

const pause = (time, signal) => new Promise(resolve => setTimeout(signal.onabort = () => resolve(), time));

/* Reads the list when it changes. The windows of a browser share six connections (HTTP/1.1), so the one that began first waits for all. There are no locks without TLS. */
async function waitForChange(signal) {
	const silence = performance.now() - heard;
	if (silence < 2 * BEAT) return pause(2 * BEAT - silence, signal);
	const isFirst = !since;
	since ??= Date.now() + Math.random();
	const tellSince = () => windows.postMessage({since});
	tellSince();
	const timer = setInterval(tellSince, BEAT);
	try {
		// one that waits already answers
		if (isFirst) await pause(REPLY, signal);
		await caughtUp;
		return since && await readList(WAIT, signal);
	} catch (error) {
		if (since) windows.postMessage({since, isOver: true});
		since = undefined;
		throw error;
	} finally {
		clearInterval(timer);
	}
}

/* Does something that may fail; why is shown in the open color, while it is still `mine`. */
async function attempt(action, mine) {
	try {
		await action();
	} catch ({message}) {
		// asks at once whether it is back
		if (message === AWAY) {
			knowsMethods = isCurrent = false;
			following.abort();
		}
		at.opened.open && mine === opened ? say(at.refusal, message) : tell(message);
	}
}

/* Has a token given, until it is one that the service accepts, or the person declines. */
async function give() {
	while (await askForToken(listTag && !at.away.textContent ? 'POST' : 'GET')) {
		await learn();
		if (!document.body.classList.contains('guarded')) return restart();
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
	speak(`Copied ${called(text)}`);
	setTimeout(() => place.classList.remove('copied'), 1500);
}

const addressed = () => new URLSearchParams(location.hash.slice(1));

/* Sort, search and the open color are in the address, so that a view can be shared. */
function readAddress() {
	const view = addressed();
	at.query.value = view.get('q') ?? '';
	chosen = [...at.order.options].find(({value}) => value === view.get('sort'))?.value;
	if (!listTag) return;
	arrange();
	followAddress();
}

function writeAddress() {
	const view = new URLSearchParams();
	if (chosen) view.set('sort', chosen);
	if (at.query.value) view.set('q', at.query.value);
	const {name, nth} = at.opened.open && opened.entry || {};
	document.title = nth ? `${blankness(name) || name} – Colors` : 'Colors';
	if (nth) view.set('color', name);
	if (nth > 1) view.set('nth', nth);
	const isOpen = addressed().has('color');
	// back closes what was opened here, so closing it goes back; that takes a moment, after which this is called again
	if (isLeaving) return;
	isLeaving = isOpen && !nth && history.state;
	if (isLeaving) return history.back();
	// the place to scroll to is that of the focus
	history.scrollRestoration = nth ? 'manual' : 'auto';
	history[nth && !isOpen ? 'pushState' : 'replaceState'](nth && (!isOpen || history.state), '', location.pathname + location.search + (`${view}` && `#${view}`));
}

function search(text) {
	at.query.value = text;
	scrollTo({top: 0, behavior: 'instant'});
	arrange();
	writeAddress();
	const near = shown.length - hits;
	speak(at.count.textContent + (near ? `, and ${near} near` : ''), QUIET);
}

at.mark.src = at.icon.href;
at.plain.href = base;
at.described.href = base.replace(/colors$/, 'openapi.json');
at.list.onclick = ({target}) => {
	const tile = target.closest('li');
	if (!tile || wasDragged) return;
	if (target.className === 'copy') attempt(() => copy(tile.entry.value, tile));
	else open(tile.entry);
};
at.list.onkeydown = event => {
	const steps = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -Infinity, End: Infinity};
	const {key, repeat, altKey, target} = event;
	const tile = target.closest('li');
	if (event.ctrlKey || event.metaKey || altKey && !(key in steps)) return;
	const {entry} = tile;
	current = shown.indexOf(entry);
	if (key in steps && !altKey) focusOn(current + steps[key]);
	else if (key.toLowerCase() === 'c') attempt(() => copy(entry.value, tile));
	else if (!altKey && !/^(F2|Delete)$/.test(key)) return;
	else if (!mayChange()) refuse();
	else if (altKey) nudge(entry, steps[key]);
	// a key that is held is one press
	else if (!repeat) key === 'F2' ? edit(entry) : remove(entry);
	event.preventDefault();
};
onkeydown = event => {
	const {key, target} = event;
	if (key === 'Escape' && drag?.isHeld) return release(true);
	// the browser finds what is drawn
	if (key === 'F3' || key === 'f' && (event.ctrlKey || event.metaKey)) draw(Infinity, false);
	if (event.repeat || event.altKey || target.closest('input, select') || document.querySelector('dialog[open]:not(#opened), .changing[open]')) return;
	const isControl = event.ctrlKey || event.metaKey;
	if (isControl && /^[yz]$/i.test(key)) attempt(event.shiftKey || /y/i.test(key) ? redo : undo);
	else if (key === '/' && !isControl && !at.opened.open) at.query.select();
	else return;
	event.preventDefault();
};
at.query.oninput = () => search(at.query.value);
at.query.onkeydown = event => {
	const {key, isComposing} = event;
	if (isComposing || !shown.length || !/^(Enter|ArrowDown)$/.test(key)) return;
	event.preventDefault();
	if (key === 'Enter') open(shown[0]);
	else focusOn(0);
};
at.order.onchange = () => {
	chosen = at.order.value;
	writeAddress();
	arrange();
};
onhashchange = () => {
	if (!isLeaving) return readAddress();
	isLeaving = false;
	writeAddress();
};
at.add.onclick = at.addFirst.onclick = () => edit();
at.bring.onclick = () => at.choose.click();
at.way.onclick = () => {
	if (!listTag) return at.give.click();
	if (!at.query.value) return edit();
	search('');
	at.query.focus();
};
at.give.onclick = () => attempt(give);
at.showHelp.onclick = () => at.help.showModal();
at.undo.onclick = () => attempt(undo);
at.redo.onclick = () => attempt(redo);
at.dismiss.onclick = () => tell();
if (at.menu.hidePopover) at.menu.onclick = () => at.menu.hidePopover();
else {
	// Safari before 17 and Firefox before 125 have no popovers
	at.menu.removeAttribute('popover');
	at.more.removeAttribute('popovertarget');
	at.more.onclick = () => at.menu.hidden = !at.menu.hidden;
	at.menu.onclick = () => at.menu.hidden = true;
	at.menu.click();
}
for (const button of document.querySelectorAll('.close')) button.onclick = () => button.closest('dialog').close();

// outside of a modal dialog, nothing is seen well, clicked or read out
const modals = new MutationObserver(() => {
	const dialog = document.querySelector('dialog[open]');
	document.documentElement.classList.toggle('modal', !!dialog);
	const place = dialog ?? document.body;
	if (at.notices.parentElement !== place) place.append(at.notices, at.said);
});
for (const dialog of document.querySelectorAll('dialog')) modals.observe(dialog, {attributeFilter: ['open']});
// an element that is hidden or disabled loses the focus
addEventListener('focusout', ({target, relatedTarget}) => {
	if (relatedTarget || isSeen(target) && !target.disabled) return;
	const dialog = document.querySelector('dialog[open]');
	if (dialog) dialog.querySelector('[autofocus], .close').focus();
	else focusTile();
});
onoffline = ononline = restart;
onresize = arrange;
const sizes = new ResizeObserver(() => {
	const {style} = document.documentElement;
	style.setProperty('--header', `${at.header.offsetHeight}px`);
	style.setProperty('--notice', `${room()}px`);
	arrange();
	if (document.activeElement.closest('#list')) reveal();
});
for (const part of [at.header, at.notices]) sizes.observe(part);
onscroll = () => tiles.size < shown.length && draw();
onbeforeprint = () => draw(Infinity, false);
document.onvisibilitychange = () => document.hidden ? following.abort() : watch();
windows.onmessage = ({data: {tag, since: theirs, isOver}}) => {
	// several tell of the same list
	if (tag) caughtUp = caughtUp.then(() => turn).then(() => document.hidden || tag === listTag ? null : readList(0, following.signal)).then(announce).catch(() => {});
	else if (since < theirs) windows.postMessage({since});
	else {
		heard = isOver ? -Infinity : performance.now();
		if (since || isOver) following.abort();
		since = undefined;
	}
};
readAddress();
watch();
at.needs.hidden = true;
