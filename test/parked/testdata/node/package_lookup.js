require('fs').writeFileSync('package.json', '{"type": "module", "name": "late"}');
require('fs').writeFileSync('late.js', 'export default 3');
import('./late.js').then(m => console.log(m.default), e => console.log(e.name, e.message));
