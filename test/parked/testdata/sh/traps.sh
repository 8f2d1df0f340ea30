trap 'echo exit $?' EXIT; trap 'echo usr1' USR1; kill -USR1 $$; trap; (echo sub)
