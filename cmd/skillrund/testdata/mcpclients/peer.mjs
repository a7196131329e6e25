// Serves the skills in a folder with the skills module of the official TypeScript server, on
// standard streams, to compare skillrun's answers with.
//
// Usage: node peer.mjs FOLDER
import { McpServer } from '@modelcontextprotocol/server';
import { loadSkills } from '@modelcontextprotocol/server/ext/skills/node';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

const skills = await loadSkills(process.argv[2], { onWarning: () => {} }); // skills that it refuses
serveStdio(() => {
  const server = new McpServer({ name: 'peer', version: '1' });
  skills.attach(server);
  return server;
});
