/* What a value looks like, where it sorts, how else it is written, and in which ink a name is readable on it. */
const at = Object.fromEntries([...document.querySelectorAll('[id]')].map(element => [element.id, element]));
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const IS_EXACT = CSS.supports('color', 'color(from red srgb r g b / alpha)');
const PLAIN = /^#[\da-f]{6}$/i;
const looks = new Map();
const BAND = 15; // degrees of hue; where pink ends, the first begins
const LONGEST = 255; // characters that CSS.supports is given; relative colors have some 120, and thousands of parentheses end the tab

/* {css, rgb, alpha, lightness, a, b, chroma, angle, isGray, rank, luminance}; without css when the value is not a color. */
function lookOf(value) {
	if (!looks.has(value)) looks.set(value, makeLook(value));
	return looks.get(value);
}

function makeLook(value) {
	const plain = ofHex(value);
	if (plain) return plain;
	const none = {rank: 2000, lightness: -1};
	// what is no color by itself could have a meaning in `exact`
	if (value.length > LONGEST || !CSS.supports('color', value)) return none;
	// CSS Color 5 §4: floats, and outside of 0 to 1 what sRGB does not have
	const exact = IS_EXACT ? `color(from ${value} srgb r g b / alpha)` : value;
	// a parenthesis may be open
	if (!IS_EXACT && !CSS.supports('background', `linear-gradient(${value}, red)`)) return none;
	// a canvas keeps its color when it is given something else, and unlike a style takes no var()
	const [first, second] = ['#000', '#fff'].map(before => {
		canvas.fillStyle = before;
		canvas.fillStyle = exact;
		return canvas.fillStyle;
	});
	if (first !== second) return none;
	// unlike a canvas, a style knows whether the scheme is light or dark
	document.head.style.color = exact;
	const css = getComputedStyle(document.head).color;
	if (!IS_EXACT) return lookIn8Bits(css);
	const [r, g, b, alpha = 1] = css.slice('color(srgb '.length, -1).split(/[ /]+/).map(number => parseFloat(number) || 0);
	return lookOfRgb(css, [r, g, b], alpha);
}

/* Browsers of before 2024 tell of most colors by a pixel. */
function lookIn8Bits(css) {
	canvas.clearRect(0, 0, 1, 1);
	canvas.fillStyle = css;
	canvas.fillRect(0, 0, 1, 1);
	const [r, g, b, alpha] = [...canvas.getImageData(0, 0, 1, 1).data].map(byte => byte / 255);
	return lookOfRgb(css, [r, g, b], alpha);
}

/* What most values are; ten times faster than to ask the browser. */
function ofHex(text) {
	return PLAIN.test(text) ? lookOfRgb(text, [1, 3, 5].map(i => parseInt(text.slice(i, i + 2), 16) / 255), 1) : null;
}

/* Sorts by OKLCH (CSS Color 4 §9.3): from red to pink in bands of hue, each from light to dark, and grays and near-blacks behind them. */
function lookOfRgb(css, rgb, alpha) {
	const weigh = (weights, channels) => weights.reduce((sum, weight, i) => sum + weight * channels[i], 0);
	const light = rgb.map(linear);
	const lms = [[0.412221, 0.536333, 0.051446], [0.211903, 0.6807, 0.107397], [0.088302, 0.281719, 0.629979]].map(weights => Math.cbrt(weigh(weights, light)));
	const lightness = weigh([0.210454, 0.793618, -0.004072], lms);
	const [a, b] = [weigh([1.977998, -2.428592, 0.450594], lms), weigh([0.025904, 0.782772, -0.808676], lms)];
	const chroma = Math.hypot(a, b);
	const angle = (Math.atan2(b, a) * 180 / Math.PI + 360) % 360;
	const isGray = chroma < 0.04 || lightness < 0.15;
	const rank = (isGray ? 1000 : Math.floor((angle + 360 - BAND) % 360 / BAND)) - lightness / 2;
	const [luminance] = clipped([weigh([0.2126, 0.7152, 0.0722], light)]);
	return {css, rgb, alpha, lightness, a, b, chroma, angle, isGray, rank, luminance};
}

/* A channel without its gamma (WCAG 2.2, relative luminance; CSS Color 4 §10.2 for what is below 0). */
function linear(channel) {
	const c = Math.abs(channel);
	return Math.sign(channel) * (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
}

const clipped = rgb => rgb.map(channel => Math.max(0, Math.min(channel, 1)));
/* Whether a color is so far outside of sRGB that 8 bits show it. */
const isClipped = ({rgb}) => rgb.some(channel => Math.abs(channel - 0.5) * 255 > 128);
const bytesOf = channels => clipped(channels).map(channel => Math.round(channel * 255));
const hexOf = channels => '#' + bytesOf(channels).map(byte => byte.toString(16).padStart(2, 0)).join('');
/* What colors have in common that are the same in 8 bits, also outside of sRGB. */
const in8Bits = ({css, rgb, alpha}) => css && [...rgb, alpha].map(channel => Math.round(channel * 255)).join();

/* A color in the four forms in which CSS is mostly written (CSS Color 4 §4 to §9), by name; all but the last are the nearest in sRGB. CSS clamps the lightness of the last. */
function formsOf({rgb, alpha, lightness, chroma, angle}) {
	const round = (number, digits) => +number.toFixed(digits);
	const [r, g, b] = bytesOf(rgb).map(byte => byte / 255);
	const [most, least] = [Math.max(r, g, b), Math.min(r, g, b)];
	const range = most - least;
	const sixth = !range ? 0 : most === r ? (g - b) / range + 6 : most === g ? (b - r) / range + 2 : (r - g) / range + 4;
	const sum = most + least;
	const saturation = range && range / (1 - Math.abs(sum - 1));
	const end = alpha < 1 ? ` / ${round(alpha, 3)})` : ')';
	const percent = round(lightness * 100, 2);
	const hue = chroma < 0.0005 ? 0 : round(angle, 2);
	return {
		hex: hexOf(alpha < 1 ? [...rgb, alpha] : rgb),
		rgb: `rgb(${bytesOf(rgb).join(' ')}${end}`,
		hsl: `hsl(${round(sixth * 60 % 360, 1) % 360} ${round(saturation * 100, 1)}% ${round(sum * 50, 1)}%${end}`,
		oklch: percent >= 0 && percent <= 100 && `oklch(${percent}% ${round(chroma, 5)} ${hue}${end}`,
	};
}

/* Gives an element the background of a value, and the ink with more contrast: at least 4.58. */
function paint({style, classList}, value) {
	const look = lookOf(value);
	const {css, alpha, luminance} = look;
	// a color with alpha is on a checkerboard, and its texts are on a background of their own
	style.color = alpha === 1 ? luminance > 0.1791 ? '#000' : '#fff' : '';
	style.background = alpha < 1 ? `linear-gradient(${css} 0 0), var(--checks)` : css ?? '';
	classList.toggle('alpha', alpha < 1);
	return look;
}

/* light-dark() and the colors of the system are those of the scheme. */
matchMedia('(prefers-color-scheme: dark)').onchange = () => {
	looks.clear();
	take(list);
};
