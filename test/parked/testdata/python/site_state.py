import site, sys, sysconfig
print(site.ENABLE_USER_SITE, site.USER_SITE, site.PREFIXES, sys.flags.no_site, hasattr(sys, "ps1"), hasattr(sys, "last_value"))
print(exit, quit, copyright, credits, __debug__)
