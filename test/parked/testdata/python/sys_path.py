import sys
print(sys.path, sys.meta_path, sys.path_hooks)
print(sys.path_importer_cache)
