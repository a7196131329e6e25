// Walks through a server of MCP's Skills extension with the skills module of the official client,
// and prints what it found as JSON. The module checks every entry, and verifies the size and the
// digest of every file and the frontmatter of every SKILL.md.
//
// Usage: node check.mjs ERA COMMAND [ARGUMENT...]
// ERA is "legacy" or a version of the protocol. COMMAND serves MCP on its standard streams.
import assert from 'node:assert/strict';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { SkillsClient } from '@modelcontextprotocol/client/ext/skills';

const [era, command, ...args] = process.argv.slice(2);
const mode = era === 'legacy' ? 'legacy' : { pin: era };
const client = new Client({ name: 'check', version: '1' }, { versionNegotiation: { mode } });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' }));
const skills = new SkillsClient(client);
assert.ok(skills.supported);

const report = { entries: (await skills.list()).skills, files: 0, directories: 0 };

// The files that a walk through the directories finds.
async function walk(uri) {
  report.directories++;
  const found = [];
  for (const child of (await skills.readDirectory(uri)).resources) {
    assert.equal(child.uri.slice(0, uri.length + 1), `${uri}/`);
    if (child.mimeType === 'inode/directory') found.push(...(await walk(child.uri)));
    else found.push(child.uri);
  }
  return found;
}

for (const entry of report.entries) {
  const { skill } = await skills.get(entry.uri);
  assert.deepEqual(skill, entry);
  const uris = entry.resources.map(resource => resource.uri);
  for (const uri of uris) {
    const file = await skills.read(entry, uri); // throws if a check fails
    assert.ok(file.verified, uri);
    report.files++;
  }
  if (skills.directoryRead) {
    const found = await walk(entry.uri.slice(0, -'/SKILL.md'.length));
    assert.deepEqual(found.sort(), uris.sort(), entry.uri);
  }
}

// What is not served is -32602, with a text.
async function refused(call) {
  const error = await call.then(() => assert.fail('not refused'), error => error);
  assert.equal(error.code, -32602, String(error));
  assert.ok(error.message.length > 10, error.message);
}
const first = report.entries[0].uri;
await refused(skills.get('skill://there-is-no-such-skill/SKILL.md'));
await refused(skills.get(first.replace('SKILL.md', 'nothing.md')));
await refused(client.readResource({ uri: first.replace('SKILL.md', 'nothing.md') }));
if (skills.directoryRead) {
  await refused(skills.readDirectory(first));
  await refused(skills.readDirectory('skill://there-is-no-such-skill'));
}

await client.close();
process.stdout.write(JSON.stringify(report));
