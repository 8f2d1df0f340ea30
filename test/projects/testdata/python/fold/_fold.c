#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* adler returns the Adler-32 sum of bytes (RFC 1950, section 8.2). */
static PyObject *adler(PyObject *self, PyObject *args)
{
	const char *data;
	Py_ssize_t n;
	unsigned long a = 1, b = 0;

	if (!PyArg_ParseTuple(args, "y#", &data, &n))
		return NULL;
	for (Py_ssize_t i = 0; i < n; i++) {
		a = (a + (unsigned char)data[i]) % 65521;
		b = (b + a) % 65521;
	}
	return PyLong_FromUnsignedLong(b << 16 | a);
}

static PyMethodDef methods[] = {{"adler", adler, METH_VARARGS, "The Adler-32 sum of bytes."}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_fold", NULL, -1, methods};

PyMODINIT_FUNC PyInit__fold(void)
{
	return PyModule_Create(&module);
}
