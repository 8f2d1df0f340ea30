console.log(Intl.DateTimeFormat().resolvedOptions().locale, process.env.LANG, (1234.5).toLocaleString(), 'ü€𝄞', 'ü'.normalize('NFD').length);
