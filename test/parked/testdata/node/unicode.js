const größe = '𝄞'; console.log(größe, größe.length); throw new Error('€ ' + größe);
