from setuptools import Extension, setup

setup(packages=["fold"], ext_modules=[Extension("fold._fold", ["fold/_fold.c"])])
