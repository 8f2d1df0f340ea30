console.log('mapped');
//# sourceMappingURL=main.js.map
