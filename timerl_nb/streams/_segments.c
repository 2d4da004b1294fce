/* Segments of plain NumPy arrays in C, for calls of kernels in a window.

The reference is `memory_segments.segments_of`, with equal results. For any other memory the function returns None,
and the caller uses the Python implementation. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* Attribute `__array_struct__`: https://numpy.org/doc/stable/reference/arrays.interface.html */
typedef struct {
    int two, dimensions;
    char kind;
    int itemsize, flags;
    Py_ssize_t *shape, *strides;
    char *data;
    PyObject *description;
} Interface;

enum { C_CONTIGUOUS = 1, F_CONTIGUOUS = 2 };
enum { FAILED = -1, FOUND, EMPTY, UNUSUAL };

static PyObject *base_name, *struct_name;

/* Find the address range of an array that owns its memory. */
static int find_range(PyObject *view, uintptr_t *first, uintptr_t *stop) {
    PyObject *base = PyObject_GetAttr(view, base_name);
    if (!base) return FAILED;
    int owns = base == Py_None;
    Py_DECREF(base);
    if (!owns) return UNUSUAL;
    PyObject *capsule = PyObject_GetAttr(view, struct_name);
    if (!capsule) return FAILED;
    int found = FAILED;
    Interface *array = PyCapsule_GetPointer(capsule, NULL);
    if (array) {
        uintptr_t count = (uintptr_t)array->itemsize;
        for (int k = 0; k < array->dimensions; k++) count *= (uintptr_t)array->shape[k];
        *first = (uintptr_t)array->data;
        *stop = *first + count;
        found = !(array->flags & (C_CONTIGUOUS | F_CONTIGUOUS)) ? UNUSUAL : count ? FOUND : EMPTY;
    }
    Py_DECREF(capsule);
    return found;
}

/* Return the known segment of a range, or a new one by a call of `make`. */
static PyObject *find_segment(uintptr_t first, uintptr_t stop, PyObject *known, PyObject *make) {
    PyObject *start = PyLong_FromSize_t(first), *end = NULL, *segment;
    if (!start) return NULL;
    segment = PyDict_GetItemWithError(known, start);
    if (segment && PyLong_AsSize_t(PyTuple_GET_ITEM(segment, 2)) == stop) {
        Py_INCREF(segment);
    } else {
        segment = NULL;
        if (!PyErr_Occurred() && (end = PyLong_FromSize_t(stop)))
            segment = PyObject_CallFunctionObjArgs(make, start, end, NULL);
    }
    Py_DECREF(start);
    Py_XDECREF(end);
    return segment;
}

/* array_segments(views, type, known, make): return the segments of the non-empty arrays in a tuple or list, or of
one array, if each has this type, owns its memory and is contiguous; else None. `known` has segments by first
address, and `make(first, stop)` returns a new one. */
static PyObject *array_segments(PyObject *self, PyObject *const *given, Py_ssize_t many) {
    if (many != 4 || !PyDict_CheckExact(given[2])) {
        PyErr_SetString(PyExc_TypeError, "array_segments takes views, a type, a dictionary and a function");
        return NULL;
    }
    PyObject *views = given[0], *type = given[1];
    int is_array = (PyObject *)Py_TYPE(views) == type;
    if (!is_array && !PyTuple_CheckExact(views) && !PyList_CheckExact(views)) Py_RETURN_NONE;
    Py_ssize_t size = is_array ? 1 : PySequence_Fast_GET_SIZE(views), count = 0;
    PyObject *result = PyTuple_New(size);
    if (!result) return NULL;
    for (Py_ssize_t k = 0; k < size; k++) {
        /* `make` can run other code, which can shorten a list */
        if (!is_array && k >= PySequence_Fast_GET_SIZE(views)) break;
        PyObject *view = is_array ? views : PySequence_Fast_GET_ITEM(views, k), *segment = NULL;
        uintptr_t first, stop;
        int found = UNUSUAL;
        Py_INCREF(view);
        if ((PyObject *)Py_TYPE(view) == type) found = find_range(view, &first, &stop);
        if (found == FOUND) segment = find_segment(first, stop, given[2], given[3]);
        Py_DECREF(view);
        if (segment) {
            PyTuple_SET_ITEM(result, count++, segment);
        } else if (found != EMPTY) {
            Py_DECREF(result);
            if (found == UNUSUAL) Py_RETURN_NONE;
            return NULL;
        }
    }
    if (count < size && _PyTuple_Resize(&result, count)) return NULL;
    return result;
}

static PyMethodDef methods[] = {
    {"array_segments", (PyCFunction)(void (*)(void))array_segments, METH_FASTCALL, NULL}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_segments", "Segments of arrays in C.", -1, methods};

PyMODINIT_FUNC PyInit__segments(void) {
    if (!(base_name = PyUnicode_InternFromString("base"))) return NULL;
    if (!(struct_name = PyUnicode_InternFromString("__array_struct__"))) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made && PyModule_AddIntConstant(made, "SOURCE", SOURCE)) Py_CLEAR(made);
    return made;
}
