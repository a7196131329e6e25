// fs.watch reports changes in the workspace, in HOME and in TMPDIR.
const fs = require('fs');
const path = require('path');

function watch(dir) {
  return new Promise((resolve, reject) => {
    const watcher = fs.watch(dir, (event, file) => {
      if (file === 'watched.txt') {
        watcher.close();
        resolve();
      }
    });
    watcher.on('error', reject);
    fs.writeFileSync(path.join(dir, 'watched.txt'), 'x');
  });
}

(async () => {
  for (const dir of [process.cwd(), process.env.HOME, process.env.TMPDIR]) {
    await watch(dir);
  }
  console.log('ok');
})();
