// Asks a server of MCP's Skills extension everything about its skills, with the official client, and
// prints the answers in a form in which those of two servers can be compared.
//
// Usage: node answers.mjs ERA COMMAND [ARGUMENT...]
// ERA is "legacy" or a version of the protocol. COMMAND serves MCP on its standard streams.
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { SkillsClient } from '@modelcontextprotocol/client/ext/skills';

const [era, command, ...args] = process.argv.slice(2);
const mode = era === 'legacy' ? 'legacy' : { pin: era };
const client = new Client({ name: 'answers', version: '1' }, { versionNegotiation: { mode } });
const transport = new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' });
await client.connect(transport);

// The client removes fields from results. raw is the newest message as it came.
let raw;
const deliver = transport.onmessage;
transport.onmessage = (message, extra) => {
  if ('result' in message || 'error' in message) raw = message;
  deliver(message, extra);
};

// ask sends a request, past the client's checks, and returns the result or the error.
const anything = { '~standard': { version: 1, vendor: 'test', validate: value => ({ value }) } };
async function ask(method, params = {}) {
  await client.request({ method, params }, anything).catch(() => {});
  return raw.error ? { code: raw.error.code } : raw.result;
}

// The fields of a result that are not its content.
const shape = ({ resultType, ttlMs, cacheScope }) => ({ resultType, ttlMs, cacheScope });

// pages asks for all pages of a list.
async function pages(method, params, field) {
  const found = [];
  let result = await ask(method, params);
  const first = shape(result);
  if (result.code) return { code: result.code };
  let count = 1;
  for (; ; count++) {
    found.push(...result[field]);
    if (!result.nextCursor) return { found, first, count };
    result = await ask(method, { ...params, cursor: result.nextCursor });
  }
}

const skills = new SkillsClient(client, { skipInvalid: true });
const { resources, extensions } = client.getServerCapabilities();
const list = await pages('skills/list', {}, 'skills');
const report = {
  capabilities: { resources, skills: extensions['io.modelcontextprotocol/skills'] },
  list: { ...list.first, pages: list.count },
  invalid: Object.fromEntries((await skills.list()).invalid.map(({ uri, reason }) => [uri, reason])),
  entries: {},
  gets: {},
  files: {},
  directories: {},
  listed: {},
  refused: {},
  read: {},
  get: {},
  directory: {},
};

// Every file of every skill, as the client verifies it.
async function read(skill, { uri }) {
  const { error } = await skills.read(skill, uri).then(() => ({}), error => ({ error: error.message }));
  const result = await ask('resources/read', { uri });
  const [content] = result.contents;
  report.files[uri] = { mimeType: content.mimeType, text: 'text' in content, error };
  report.read = shape(result);
}

// Every directory, from the skill's own on.
async function walk(uri) {
  const { found, first, code } = await pages('resources/directory/read', { uri }, 'resources');
  report.directories[uri] = code ?? found.map(({ uri, mimeType, size = 0 }) => ({ uri, size, directory: mimeType === 'inode/directory' }));
  const own = found?.find(child => child.uri === `${uri}/SKILL.md`);
  if (own) report.directory.name = uri.endsWith(`/${own.name}`) ? 'the name of the skill' : own.name;
  Object.assign(report.directory, first);
  for (const child of found ?? []) if (child.mimeType === 'inode/directory') await walk(child.uri);
}

for (const skill of list.found) {
  const { uri, frontmatter, resources } = skill;
  report.entries[uri] = { frontmatter, resources: resources.map(({ uri, digest, size }) => ({ uri, digest, size })) };
  if (uri.startsWith('skill://many-')) continue; // they are only there for the pages
  const get = await ask('skills/get', { uri });
  report.gets[uri] = JSON.stringify(get.skill) === JSON.stringify(skill);
  report.get = shape(get);
  for (const resource of resources.slice(0, 10)) await read(skill, resource); // one skill has 513
  await walk(uri.slice(0, -'/SKILL.md'.length));
}

const all = await pages('resources/list', {}, 'resources');
for (const { uri, name, description, mimeType, size } of all.found) report.listed[uri] = { name, description, mimeType, size };

for (const [method, params] of [
  ['skills/get', { uri: 'skill://nothing/SKILL.md' }],
  ['skills/get', { uri: 'skill://plain' }],
  ['skills/get', { uri: 'skill://plain/references/guide.md' }],
  ['skills/get', { uri: 'skill://pl%61in/SKILL.md' }],
  ['skills/get', { uri: 'skill://PLAIN/SKILL.md' }],
  ['skills/get', { uri: 'plain' }],
  ['skills/get', {}],
  ['skills/get', { uri: 'skill://too-many/SKILL.md' }],
  ['skills/list', { cursor: 'nonsense' }],
  ['resources/read', { uri: 'skill://nothing/SKILL.md' }],
  ['resources/read', { uri: 'skill://plain/nothing.md' }],
  ['resources/read', { uri: 'skill://plain/references' }],
  ['resources/read', { uri: 'skill://plain/references/../SKILL.md' }],
  ['resources/directory/read', { uri: 'skill://nothing' }],
  ['resources/directory/read', { uri: 'skill://plain/nothing' }],
  ['resources/directory/read', { uri: 'skill://plain/SKILL.md' }],
  ['resources/directory/read', { uri: 'skill://plain/references/' }],
  ['resources/directory/read', { uri: 'skill://' }],
  ['resources/directory/read', {}],
  ['resources/directory/read', { uri: 'skill://plain', cursor: 'nonsense' }],
]) {
  report.refused[`${method} ${params.uri ?? ''}${params.cursor ? ' cursor' : ''}`] = (await ask(method, params)).code ?? 'answered';
}

await client.close();
process.stdout.write(JSON.stringify(report));
