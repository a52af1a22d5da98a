
/* Speaks with the service: requests, conditions, the token. */
const base = location.pathname.replace(/\/+$/, '') + '/colors';
const pathOf = name => `${base}/${encodeURIComponent(name)}`;
const TOKEN = `token for ${base}`;
const B64TOKEN = /^[\w.~+/-]+=*$/; // RFC 6750 §2.1; fetch throws at some others
const NO_TAG = 'none'; // stands for the tag where a proxy takes it away
const LIMIT = 15000; // milliseconds until a request without an answer counts as lost, for a wait 5000 after its end; content has 10 kB/s in addition
const AWAY = 'The service does not answer';
const BACK = 'The service is back.';
/* Speaks to the other windows of the browser, where it allows that. */
function channelOf(name) {
	try {
		return new BroadcastChannel(name);
	} catch {
		return {postMessage() {}};
	}
}

const tabs = channelOf(TOKEN); // of this browser; an empty message asks for the token, any other is the token
const refused = new Set(); // tokens that the service did not accept
let isDeclined, dialogue;

/* What the browser keeps for this tab, or where it refuses to, what is kept until the page is left. */
const storage = (() => {
	try {
		sessionStorage.getItem(TOKEN);
		return sessionStorage;
	} catch {
		const kept = new Map();
		return {getItem: key => kept.get(key) ?? null, setItem: (key, text) => kept.set(key, text)};
	}
})();

const tokenOfTab = () => storage.getItem(TOKEN) ?? '';

/* Has this tab use a token; false if it has a character that no token may have. */
function keep(token) {
	if (!B64TOKEN.test(token)) return false;
	storage.setItem(TOKEN, token);
	// what it allows is asked anew
	isDeclined = knowsMethods = false;
	document.body.classList.remove('guarded');
	at.asking.close();
	return true;
}

/* One request, with `tag` as its condition. Throws when the service does not answer. */
async function ask(method, path, {tag, content, wait, signal} = {}) {
	for (;;) {
		const token = tokenOfTab();
		const headers = {Accept: 'application/json'};
		if (token) headers.Authorization = `Bearer ${token}`;
		if (tag && tag !== NO_TAG) headers[method === 'GET' ? 'If-None-Match' : 'If-Match'] = tag;
		if (wait) headers.Prefer = `wait=${wait}`;
		if (content) headers['Content-Type'] = 'application/json';
		const body = content && JSON.stringify(content);
		const answer = await send(path, {method, headers, body, signal}, (wait ? 5000 + 1000 * wait : LIMIT) + (body?.length ?? 0) / 10);
		if (answer.status !== 401) return answer;
		// another request may have got a token meanwhile
		if (token !== tokenOfTab()) continue;
		if (method === 'GET' && isDeclined || !await askForToken(method)) return {...answer, message: 'This needs a token'};
	}
}

async function send(path, init, limit) {
	const late = new AbortController();
	const {signal} = late;
	let isLate = false;
	const timer = setTimeout(() => {
		isLate = true;
		late.abort();
	}, limit);
	const stop = () => late.abort();
	if (init.signal?.aborted) stop();
	init.signal?.addEventListener('abort', stop);
	try {
		// a cache on the way may be older than our own change
		const response = await fetch(path, {...init, signal, cache: 'no-store'});
		const {status, headers} = response;
		// the rest of a long list may take minutes on a slow line
		clearTimeout(timer);
		// what a proxy says when it finds no service
		if (status === 502 || status === 504) throw status;
		const text = await response.text();
		const json = text && JSON.parse(text);
		const message = json.message ?? (status === 404 ? 'there is no such color any more' : `status ${status}`);
		// a proxy that compresses makes tags weak, or puts a suffix behind them; If-Match wants those of the service, which name the content
		const tag = headers.get('ETag')?.replace(/^W\//, '').replace(/-[a-z\d]{1,16}"$/, '"') ?? NO_TAG;
		return {status, json, message, tag, allow: headers.get('Allow') ?? '', isChallenged: headers.has('WWW-Authenticate')};
	} catch {
		isCurrent = false;
		throw Object.assign(new Error(AWAY), {isLate});
	} finally {
		clearTimeout(timer);
		init.signal?.removeEventListener('abort', stop);
	}
}

/* Asks the person for a token; false when declined. Requests that need one at the same time share the dialog. */
function askForToken(method) {
	return dialogue ??= new Promise(resolve => {
		at.asked.textContent = method === 'GET' ? 'These colors are private' : 'Changes need a token';
		const token = tokenOfTab();
		refused.add(token);
		at.reason.textContent = token && 'The service did not accept this token.';
		at.token.value = '';
		isDeclined = true;
		at.asking.onsubmit = event => {
			event.preventDefault();
			const token = at.token.value.trim();
			if (keep(token)) tabs.postMessage(token);
			else say(at.reason, 'A token has only letters, digits and - . _ ~ + /, and = at its end. This one has something else.');
		};
		at.asking.onclose = () => {
			dialogue = null;
			resolve(!isDeclined);
		};
		at.asking.showModal();
		tabs.postMessage('');
	});
}

tabs.onmessage = ({data}) => {
	const token = tokenOfTab();
	const isGood = token && !refused.has(token);
	if (!data && isGood) tabs.postMessage(token);
	if (data && !isGood && !refused.has(data) && keep(data)) restart();
};
tabs.postMessage('');
