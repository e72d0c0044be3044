// Lists and calls every tool with the inspector's command line, one process for each call, as calls.json says.
// Usage: node inspect.mjs INSPECTOR NAME TARGET...
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

const [inspector, name, ...target] = process.argv.slice(2);
const calls = JSON.parse(readFileSync(new URL('calls.json', import.meta.url), 'utf8'));
const kept = {};
const token = process.env.REKINDLE_CLIENT_TOKEN;
const headers = name === 'HTTP' ? ['--header', `Authorization: Bearer ${token}`] : [];

function inspect(...words) {
  const done = spawnSync(process.execPath, [inspector, '--cli', ...headers, ...words, '--', ...target], { encoding: 'utf8' });
  try {
    return JSON.parse(done.stdout);
  } catch {
    throw new Error(`${words.join(' ')}: status ${done.status}\n${done.stdout}\n${done.stderr}`);
  }
}

const filled = (value) => (typeof value === 'string' && value.startsWith('$') ? kept[value.slice(1)] : value);

function call({ tool, arguments: given, refused, keep = {} }) {
  const words = Object.entries(given).map(([key, value]) => {
    const text = filled(value);
    return `${key}=${typeof text === 'string' ? text : JSON.stringify(text)}`;
  });
  const pairs = words.length > 0 ? ['--tool-arg', ...words] : [];
  const answer = inspect('--method', 'tools/call', '--tool-name', tool, ...pairs);
  const content = answer.structuredContent;
  if (Boolean(answer.isError) !== Boolean(refused) || content === undefined) {
    throw new Error(`${tool}: ${JSON.stringify(answer)}`);
  }
  for (const [as, field] of Object.entries(keep)) kept[as] = content[field];
  return content;
}

const tools = inspect('--method', 'tools/list').tools.map((tool) => tool.name);
const called = new Set();
for (const one of calls.filter((one) => tools.includes(one.tool))) {
  let content = call(one);
  for (let tries = 0; one.until && content[one.until[0]] !== one.until[1] && tries < 30; tries += 1) content = call(one);
  if (one.until && content[one.until[0]] !== one.until[1]) throw new Error(`${one.tool}: ${JSON.stringify(content)}`);
  called.add(one.tool);
}
const left = tools.filter((tool) => !called.has(tool));
if (left.length > 0) throw new Error(`nobody called ${left.join(', ')}`);
console.log(`inspector, ${name}: ${called.size} tools listed and called`);
