function f() { f(); }
try { f(); } catch (e) { console.log(e.name, e.message); }
