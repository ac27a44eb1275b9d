// The page that the program writes, run in a small document: coordinates of curves, ticks, cells of tables and heat maps.
// Usage: node page_test.mjs QUENCH

import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {dirname, join} from 'node:path';
import {after, test} from 'node:test';

import {open} from './dom_stub.mjs';

const program = process.argv[2];
const work = mkdtempSync(join(tmpdir(), 'page_test-'));
after(() => rmSync(work, {recursive: true}));

const lines = records => records.map(record => JSON.stringify(record) + '\n').join('');
const byStep = (key, values) => values.map((value, i) => ({step: i + 1, [key]: value}));

let runs = 0;
// Folder of a run with these files: name: text, or list of records.
function folder(files) {
  const path = join(work, `run${++runs}`);
  for (const [name, content] of Object.entries({'environment.json': '{}', ...files})) {
    mkdirSync(dirname(join(path, name)), {recursive: true});
    writeFileSync(join(path, name), typeof content === 'string' ? content : lines(content));
  }
  return path;
}

function report(...folders) {
  const output = join(work, 'page.html');
  execFileSync(program, ['report', ...folders, '--output', output], {stdio: ['ignore', 'ignore', 'pipe']});
  return open(readFileSync(output, 'utf8'));
}

const loss = values => ({'metrics/metrics.jsonl': byStep('loss', values)});
const paths = figure => figure.all('path', 'line').map(path => path.attributes.d);
const rows = (element, tag = 'td') => element.all('tr').map(row => row.texts(tag)).filter(row => row.length > 0);
const settled = page => structuredClone(page);  // values of the page's own realm compare with those of this one
const positions = (axis, values) => values.map(value => Number(axis.position(value).toFixed(9)));

test('a curve goes through its values and a gap interrupts it', () => {
  const figure = report(folder(loss([5, 4, null, 2, 1]))).figure('Loss');
  assert.deepEqual(paths(figure), ['M56.0 26.0L198.5 86.0M483.5 206.0L626.0 266.0']);
  assert.deepEqual(figure.texts('text', 'tick'), ['1', '2', '3', '4', '5', '1', '2', '3', '4', '5', 'step']);
  assert.equal(figure.all('svg')[0].namespaceURI, 'http://www.w3.org/2000/svg');
  assert.deepEqual(figure.texts('span', 'unit'), ['nats per token']);
});

test('a single value is a dot in the middle', () => {
  const page = report(folder(loss([3.5])));
  const [dot] = page.figure('Loss').all('circle', 'dot');
  assert.deepEqual([dot.attributes.cx, dot.attributes.cy], ['341.0', '146.0']);
});

test('the log switch exists for positive values and redraws the curve', () => {
  const page = report(folder(loss([100, 10, -3, 1])));
  const figure = page.figure('Loss'), [box] = figure.all('input');
  assert.deepEqual(figure.texts('label'), ['log scale']);
  box.checked = true;
  box.listeners.change();
  assert.deepEqual(paths(figure), ['M56.0 26.0L246.0 146.0M626.0 266.0'], 'the value below 0 is a gap');
  assert.deepEqual(figure.texts('text', 'tick').slice(0, 7), ['1', '2', '5', '10', '20', '50', '100']);
  box.checked = false;
  box.listeners.change();
  assert.equal(figure.all('svg').length, 1);
  assert.equal(paths(figure)[0].match(/L/g).length, 3);
  assert.equal(report(folder(loss([-1, 0]))).figure('Loss').all('input').length, 0);
});

test('rates begin at 0 and have short labels', () => {
  const page = report(folder({'metrics/metrics.jsonl': byStep('lr', [1e-4, 3e-4])}));
  assert.deepEqual(page.figure('Learning rate').texts('text', 'tick').slice(0, 4), ['0', '1e-4', '2e-4', '3e-4']);
  assert.deepEqual(paths(page.figure('Learning rate')), ['M56.0 186.0L626.0 26.0']);
});

const restless = Array.from({length: 400}, (_, i) => i % 2 === 0 ? 1 : 3);

test('long curves have their average over faint values', () => {
  const page = report(folder(loss(restless)));
  const figure = page.figure('Loss');
  assert.deepEqual(figure.texts('span').slice(1), ['training', 'training, averaged']);
  assert.deepEqual(figure.all('path', 'line').map(path => path.class), ['line s0 faint', 'line s0']);
  const heights = paths(figure)[1].match(/ [\d.]+/g).map(Number);
  assert.ok(heights.slice(20, -20).every(y => Math.abs(y - 146) < 20), 'near the mean, the values are 120 away');
});

test('the pointer shows the nearest values of all curves', () => {
  const page = report(folder({...loss([5, 4, null, 2, 1]),
    'metrics/evaluations.jsonl': [{step: 2, name: 'validation', values: {loss: 3}}]}));
  const figure = page.figure('Loss'), [drawing] = figure.all('svg'), [hover] = figure.all('g', 'hover');
  drawing.listeners.pointermove({clientX: 480});
  assert.deepEqual(hover.texts('text'), ['step 4  \u00b7  training 2  \u00b7  validation 3 (step 2)']);
  assert.equal(hover.all('path', 'guide')[0].attributes.d, 'M483.5 26v240');
  drawing.listeners.pointerleave();
  assert.equal(hover.children.length, 0);
});

test('marks have their place and text', () => {
  const page = report(folder({
    'metrics/metrics.jsonl': [{step: 1, loss: 4, lr: 1}, {step: 41, loss: 3, lr: 1},
                              {step: 42, loss: null, nonfinite: true}, {step: 101, loss: 2, lr: 1}],
    'metrics/events.jsonl': [{step: 11, event: 'resume', message: ''}, {step: 21, event: 'rollback', message: '<b>'},
                             {step: 31, event: 'spike', message: 'spike: loss 9.0'}, {step: 32, event: 'other'}],
    'checkpoints/step-51/model.safetensors': 'x'}));
  const figure = page.figure('Loss');
  const of = kind => figure.all('path', kind).map(mark => [mark.attributes.d, mark.textContent]);
  assert.deepEqual(of('checkpoint'), [['M341.0 262.0l4 4l-4 4l-4 -4z', 'step 51: checkpoint step-51']]);
  assert.deepEqual(of('resume'), [['M113.0 26.0v240', 'step 11: resumed from here'],
                                  ['M170.0 26.0v240', 'step 21: rolled back to here: <b>']]);
  assert.deepEqual(of('spike'), [['M227.0 17.0m-5 0h10l-5 8z', 'step 31: spike: loss 9.0']]);
  assert.deepEqual(of('flag'), [['M289.7 266v-9', 'step 42: not finite']]);
  assert.deepEqual(figure.all('div', 'legend')[0].texts('span'), ['resume', 'checkpoint', 'spike']);
  assert.equal(page.figure('Learning rate').all('path', 'spike').length, 0);
  assert.equal(page.figure('Learning rate').all('path', 'checkpoint').length, 1);
});

test('axes have round ticks', () => {
  const {script} = report(folder(loss([1])));
  const labels = axis => settled(axis.ticks.map(script.short));
  const axis = script.linearAxis(2.3, 11.2, 5, true);
  assert.deepEqual(labels(axis), ['2', '4', '6', '8', '10', '12']);
  assert.deepEqual(positions(axis, [2, 12]), [0, 1]);
  const rough = script.linearAxis(1, 1000, 7, false);
  assert.deepEqual([rough.low, rough.high, ...labels(rough)], [1, 1000, '200', '400', '600', '800', '1000']);
  assert.deepEqual(labels(script.linearAxis(0, 3e-4, 5, true)), ['0', '1e-4', '2e-4', '3e-4']);
  for (const value of [0, 5, -3, 1e-9, 1e18]) {
    const widened = script.linearAxis(value, value, 5, true);
    assert.ok(widened.low < value && value < widened.high && widened.ticks.length > 0 && widened.ticks.length <= 12);
  }
  const log = script.logAxis(1, 100, 5);
  assert.deepEqual(labels(log), ['1', '2', '5', '10', '20', '50', '100']);
  assert.deepEqual(positions(log, [1, 10, 100]), [0, 0.5, 1]);
  assert.deepEqual(positions(script.logAxis(4, 4, 5), [4]), [0.5]);
  const many = script.logAxis(1e-12, 1e12, 5).ticks.length;
  assert.ok(many >= 4 && many <= 8);
});

test('numbers are short', () => {
  const {script} = report(folder(loss([1])));
  const all = (format, pairs) => pairs.forEach(([value, text]) => assert.equal(script[format](value), text));
  all('short', [[0, '0'], [-0, '0'], [1000, '1000'], [12000, '12k'], [123456, '123.456k'], [1.5e6, '1.5M'], [-2e9, '-2G'],
                [3.2817, '3.2817'], [0.25, '0.25'], [3e-4, '3e-4'], [1e-4, '1e-4'], [1e20, '1e20'], [null, 'n/a']]);
  all('exact', [[3.28174, '3.2817'], [25.5, '25.50'], [1.2e-7, '1.2e-7'], [0, '0.0000'], [null, 'n/a']]);
  all('count', [[7, '7'], [47960, '47,960'], [-1234567, '-1,234,567'], [1e20, '1e20']]);
  all('bytes', [[2048, '2.0 KiB'], [3 * 2 ** 20, '3.0 MiB'], [1.25 * 2 ** 30, '1.25 GiB']]);
  all('duration', [[3720, '1:02:00'], [751.4, '0:12:31']]);
  assert.equal(script.every(Array(200).fill(0), 200).length, 200);
  assert.equal(script.every(Array(250).fill(0), 200).length, 125);
  all('shortLayer', [['model.layers.3.mlp.down_proj', '3.down_proj'], ['layers.3.x', '3.x'], ['lm_head', 'lm_head']]);
});

test('cards, tables and texts hold what the run left', () => {
  const page = report(folder({
    'metrics/metrics.jsonl': [
      {step: 1, total_steps: 3, time: 1700000000, loss: 4.5, grad_norm: 1, lr: 0.001, tokens_per_second: 1000,
       tflops: 600, mfu: 0.6, sol_fraction: 0.4, memory_bytes: 2 ** 30, memory_share: 0.25, tokens_seen: 12000},
      {step: 3, total_steps: 3, time: 1700003720, loss: 3.25, skipped_steps: 1, nonfinite: true}],
    'metrics/evaluations.jsonl': [
      {step: 2, name: 'validation', values: {loss: 1.5, perplexity: 4.5}, tokens: 5000, seconds: 1},
      {step: 3, name: 'validation', values: {loss: 2, perplexity: 7.4}, tokens: 5000, seconds: 1.25},
      {step: 3, name: 'hellaswag', values: {acc: 0.3125}}],
    'metrics/samples.jsonl': [{step: 3, prompt: 'Once', text: ' upon a time'}],
    'config.json': '{"run": {"name": "tiny"}, "seed": 7, "training": {"10": 1, "filter": {"exclude": ["lm_head"]}}}',
    'checkpoints/step-3/model.safetensors': 'x'.repeat(2048)}));
  assert.equal(page.document.title, 'tiny \u00b7 Quench');
  assert.deepEqual(page.page.texts('h1'), ['tiny']);
  assert.equal(page.page.texts('p')[0], 'Quench training report \u00b7 2023-11-14 22:13 UTC to 2023-11-14 23:15 UTC');
  assert.deepEqual(page.page.all('div', 'card').map(card => card.children.map(child => child.textContent)), [
    ['Steps', '3', 'complete'],
    ['Training loss', '3.2500', 'at step 3'],
    ['Best validation loss', '1.5000', 'ppl 4.4817 at step 2'],
    ['Tokens seen', '12k', '12,000 trained: without prompts and padding'],
    ['Tokens per second', '1,000', 'median, of all tokens, padding too'],
    ['TFLOP/s per device', '600', 'MFU 60.0%, of light 40.0%, median'],
    ['Peak memory', '1.00 GiB', '25% of a device'],
    ['Wall time', '1:02:00', 'first to last record'],
    ['Non-finite steps', '1', '1 updates skipped']]);
  const [latest, history] = page.section('evaluations').all('table');
  assert.deepEqual(rows(latest, 'th'), [['evaluation', 'step', 'loss', 'perplexity', 'acc', 'tokens', 'seconds']]);
  assert.deepEqual(rows(latest), [['validation', '3', '2.0000', '7.4000', '', '5,000', '1.3'],
                                  ['hellaswag', '3', '', '', '0.3125', '', '']]);
  assert.deepEqual(rows(history), [['2', '1.5000', '4.5000', '5,000', '1.0'], ['3', '2.0000', '7.4000', '5,000', '1.3']]);
  assert.deepEqual(page.section('evaluations').texts('summary'), ['validation: all of 2 evaluations']);
  assert.deepEqual(page.section('samples').texts('div', 'where'), ['step 3']);
  assert.deepEqual(page.section('samples').texts('p'), ['Once upon a time']);
  assert.deepEqual(rows(page.section('checkpoints')).map(row => row.slice(0, 3)), [['step-3', '3', '2.0 KiB']]);
  assert.deepEqual(page.section('config').texts('summary'), ['general', 'run', 'training']);
  assert.deepEqual(rows(page.section('config')),
    [['seed', '7'], ['name', 'tiny'], ['10', '1'], ['filter.exclude', '["lm_head"]']]);
  assert.ok(page.figure('Model FLOPs utilization').texts('span').includes('share of the speed of light'));
  assert.deepEqual(page.page.all('nav')[0].all('a').map(link => link.attributes.href),
    ['#curves', '#evaluations', '#samples', '#checkpoints', '#config']);
});

test('an empty run says so', () => {
  const page = report(folder({}));
  assert.deepEqual(page.page.texts('div', 'empty'), ['No training metrics were recorded in this folder yet.']);
  assert.equal(page.page.all('svg').length + page.page.all('section').length + page.page.all('div', 'card').length, 0);
});

test('step times of processes: one curve each, of many the extremes', () => {
  const of = ranks => report(folder({'metrics/metrics.jsonl': [{step: 1, rank_ms: ranks}, {step: 2, rank_ms: ranks}]}))
    .figure('Step time of each process').all('div', 'legend')[0].texts('span');
  assert.deepEqual(of([10, 20]), ['rank 0', 'rank 1']);
  assert.deepEqual(of([10, 20, 30, 40, 50, 60, 70, 80, 90]), ['slowest rank', 'mean', 'fastest rank']);
});

test('heat maps of health have a cell for neighbours that look alike', () => {
  const operand = (format, sqnr_db, nonfinite = false) => ({format, sqnr_db, saturated: 0, underflow: 0.01, nonfinite});
  const health = [10, 20, 30, 40, 50].map(step => ({step, layers: {
    'model.layers.0.mlp.down_proj': {input: operand('e4m3', step >= 40 ? 24.5 : 31.5),
                                     output_gradient: operand('e5m2', 25.6, step === 50)},
    'lm_head': {input: operand('e4m3', null)}}}));
  const page = report(folder({'metrics/health.jsonl': health}));
  const figure = page.figure('Inputs'), cells = figure.all('rect');
  assert.deepEqual(figure.texts('span', 'unit'), ['dB of SQNR below the 32.2 of dense e4m3 values']);
  assert.deepEqual(cells.map(cell => [cell.class, cell.textContent]), [
    ['h0', 'model.layers.0.mlp.down_proj  \u00b7  steps 10 to 30  \u00b7  31.5 dB  \u00b7  1% become 0'],
    ['h5', 'model.layers.0.mlp.down_proj  \u00b7  steps 40 to 50  \u00b7  24.5 dB  \u00b7  1% become 0'],
    ['h0', 'lm_head  \u00b7  steps 10 to 50  \u00b7  nothing lost']]);
  assert.deepEqual(cells.map(({attributes: {x, y, width, height}}) => [x, y, width, height].map(Number)),
    [[124, 6, 301.2, 16], [425.2, 6, 200.8, 16], [124, 22, 502, 16]]);
  assert.deepEqual(figure.texts('text', 'tick'), ['0.down_proj', 'lm_head', '10', '20', '30', '40', '50', 'step']);
  assert.deepEqual(page.figure('Output gradients').all('rect').map(cell => cell.class), ['h0', 'h7']);
  const [card] = page.page.all('div', 'bad');
  assert.deepEqual(card.children.map(child => child.textContent), ['Lowest SQNR', 'not finite', '0.down_proj, gradient, step 50']);
});

test('expert loads are shaded by their share of the mean', () => {
  const figure = report(folder({'metrics/experts.jsonl': [{step: 7, layers: {3: [0.5, 0.25, 0.25, 0]}}]})).figure('Expert load');
  assert.deepEqual(figure.all('rect').map(cell => [cell.class, cell.textContent]), [
    ['h5', 'layer 3, expert 0  \u00b7  2.00 of the mean load'], ['h3', 'layer 3, expert 1  \u00b7  1.00 of the mean load'],
    ['h3', 'layer 3, expert 2  \u00b7  1.00 of the mean load'], ['h7', 'layer 3, expert 3  \u00b7  0.00 of the mean load']]);
});

test('a comparison has curves, final figures and what differs', () => {
  const run = (name, lr, last) => folder({
    ...loss([last + 2, last]),
    'metrics/evaluations.jsonl': [{step: 1, name: 'validation', values: {loss: last - 0.5}},
                                  {step: 2, name: 'validation', values: {loss: last}}],
    'config.json': JSON.stringify({run: {name, folder: name}, training: {dtype: 'bf16'}, optimizer: {lr}}),
    'environment.json': JSON.stringify({device_name: 'A fast chip', host: name})});
  const page = report(run('slow', 0.001, 2), run('fast', 0.01, 1));
  assert.equal(page.document.title, 'slow, fast \u00b7 Quench');
  assert.equal(page.page.texts('p')[0], '2 runs compared');
  assert.deepEqual(paths(page.figure('Training loss')), ['M56.0 26.0L626.0 186.0', 'M56.0 106.0L626.0 266.0']);
  assert.deepEqual(rows(page.section('figures'), 'th'), [['', '\u25a0 slow', '\u25a0 fast']]);
  assert.deepEqual(rows(page.section('figures')), [
    ['Steps', '2', '2'], ['Last training loss', '2.0000', '1.0000'],
    ['Last validation loss', '2.0000 (ppl 7.3891) at 2', '1.0000 (ppl 2.7183) at 2'],
    ['Best validation loss', '1.5000 (ppl 4.4817) at 1', '0.5000 (ppl 1.6487) at 1']]);
  assert.deepEqual(rows(page.section('settings')), [['optimizer.lr', '0.001', '0.01']]);
  assert.equal(page.section('environment'), undefined);
  const averages = report(folder(loss(restless)), folder(loss(restless))).figure('Training loss');
  assert.equal(paths(averages).length, 2);
  assert.ok(averages.texts('text', 'tick').includes('2') && !averages.texts('text', 'tick').includes('3'));
  const same = report(run('a', 0.1, 1), run('b', 0.1, 1));
  assert.deepEqual(same.page.texts('div', 'empty'), ['No setting differs.']);
});

test('hostile texts stay text', () => {
  const evil = '</script><img src=x onerror=y>"\' & \u0000__proto__';
  const page = report(folder({
    'metrics/metrics.jsonl': [{step: 1, loss: 1, [evil]: 2}],
    'metrics/evaluations.jsonl': [{step: 1, name: evil, values: {[evil]: 1, ['__proto__']: 2}}],
    'metrics/samples.jsonl': [{step: 1, prompt: evil, text: evil}],
    'config.json': JSON.stringify({run: {name: evil}, [evil]: evil}),
    'model/config.json': `{broken ${evil}`}));
  const shown = evil.replace('\u0000', '\ufffd');
  assert.equal(page.document.title, `${shown} \u00b7 Quench`);
  assert.deepEqual(page.section('samples').texts('p'), [shown + shown]);
  assert.equal(page.section('evaluations').all('td')[0].textContent, shown);
  assert.equal(page.page.all('img').length + page.page.all('script').length, 0);
  assert.match(page.page.all('footer')[0].textContent, /Not everything in the folder could be read:config\.json/);
});
