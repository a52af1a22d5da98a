
/* Speaks with the service: requests, conditions, the token. */

const base = location.pathname.replace(/\/+$/, '') + '/colors';
const pathOf = name => `${base}/${encodeURIComponent(name)}`;
const TOKEN = `token for ${base}`;
let isDeclined, dialogue;

/* One request, with `tag` as its condition. Throws when the service does not answer. */
async function ask(method, path, {tag, content} = {}) {
	for (;;) {
		const token = sessionStorage.getItem(TOKEN);
		const headers = {Accept: 'application/json'};
		if (token) headers.Authorization = `Bearer ${token}`;
		if (tag) headers[method === 'GET' ? 'If-None-Match' : 'If-Match'] = tag;
		if (content) headers['Content-Type'] = 'application/json';
		const answer = await send(path, {method, headers, body: content && JSON.stringify(content)});
		if (answer.status !== 401) return answer;
		// another request may have got a token meanwhile
		if (token !== sessionStorage.getItem(TOKEN)) continue;
		if (method === 'GET' && isDeclined || !await askForToken(answer.message)) return answer;
	}
}

async function send(path, init) {
	try {
		// a cache on the way may be older than our own change
		const response = await fetch(path, {...init, cache: 'no-store', signal: AbortSignal.timeout(15000)});
		const {status, headers} = response;
		const text = await response.text();
		const json = text && JSON.parse(text);
		const message = json.message ?? (status === 404 ? 'there is no such color any more' : `status ${status}`);
		// a proxy that compresses makes tags weak, and If-Match wants them strong
		return {status, json, message, tag: headers.get('ETag')?.replace('W/', ''), allow: headers.get('Allow') ?? ''};
	} catch {
		throw new Error('The service does not answer');
	}
}

/* Has the person give a token; false when declined. Requests share the dialog. */
function askForToken(reason) {
	return dialogue ??= new Promise(resolve => {
		at.reason.textContent = reason;
		at.token.value = '';
		isDeclined = true;
		at.asking.onsubmit = event => {
			event.preventDefault();
			sessionStorage.setItem(TOKEN, at.token.value);
			isDeclined = false;
			at.asking.close();
		};
		at.asking.onclose = () => {
			dialogue = null;
			resolve(!isDeclined);
		};
		at.asking.showModal();
	});
}
