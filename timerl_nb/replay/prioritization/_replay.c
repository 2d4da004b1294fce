/* Replay buffer in C: one call inserts rows, draws entries, gathers rows or updates priorities.

The reference is `tree_numpy`, with bitwise equal results: compile without contraction of products and sums.
Arrays come through the buffer protocol. A call that finds an unusual argument changes nothing and reports it;
the caller then uses the Python implementation, which handles the argument or explains the error. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#define INLINE static inline __attribute__((always_inline))
#else
#define PREFETCH(address) ((void)(address))
#define INLINE static inline
#endif

enum { BLOCK = 64, AHEAD = 16, LONG = 512, FANOUT = 256 }; /* LONG: entries that justify releasing the GIL */

/* --- arrays -------------------------------------------------------------------------------------------------- */

typedef struct {
    Py_ssize_t count, size;
    Py_buffer *view;
} Views;

static int reserve(Views *views, Py_ssize_t size) {
    views->count = 0;
    views->size = size;
    views->view = PyMem_Malloc(sizeof(Py_buffer) * (size_t)(size ? size : 1));
    if (!views->view) PyErr_NoMemory();
    return views->view != NULL;
}

static void release(Views *views) {
    while (views->count) PyBuffer_Release(&views->view[--views->count]);
    PyMem_Free(views->view);
}

static Py_buffer *view_of(Views *views, PyObject *array, int flags) {
    Py_buffer *view = &views->view[views->count];
    if (PyObject_GetBuffer(array, view, flags)) return NULL;
    views->count++;
    return view;
}

/* Return the numbers of a contiguous array, at least `count`; NULL with an exception otherwise. */
static void *numbers(Views *views, PyObject *array, char kind, int writable, Py_ssize_t count, Py_ssize_t *found) {
    Py_buffer *view = view_of(views, array, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0));
    if (!view) return NULL;
    char is = view->format && view->itemsize == 8 ? *view->format : 0;
    if ((is == 'l' ? 'q' : is) != kind || view->len / 8 < count) {
        PyErr_Format(PyExc_TypeError, "expected %zd numbers of 64 bits", count);
        return NULL;
    }
    if (found) *found = view->len / 8;
    return view->buf;
}

/* Return the size of a row in bytes; -1 if its elements are not contiguous. */
static Py_ssize_t row_bytes(const Py_buffer *view) {
    Py_ssize_t bytes = view->itemsize;
    if (!view->ndim) return -1;
    for (int axis = view->ndim - 1; axis > 0; axis--) {
        if (view->shape[axis] != 1 && view->strides[axis] != bytes && view->len) return -1;
        bytes *= view->shape[axis];
    }
    return bytes;
}

INLINE void copy_row(char *to, const char *from, Py_ssize_t bytes) {
    switch (bytes) { /* a constant size needs no call */
    case 1: *to = *from; break;
    case 4: memcpy(to, from, 4); break;
    case 8: memcpy(to, from, 8); break;
    case 16: memcpy(to, from, 16); break;
    default: memcpy(to, from, (size_t)bytes);
    }
}

static int expect(Py_ssize_t count, Py_ssize_t wanted) {
    if (count != wanted) PyErr_Format(PyExc_TypeError, "expected %zd arguments, not %zd", wanted, count);
    return count == wanted;
}

/* --- the sum tree -------------------------------------------------------------------------------------------- */

typedef struct {
    double *sums, *least;
    const int64_t *starts;
    int64_t levels, shift, capacity; /* levels: without the root */
    double most;
} Tree;

static int read_levels(Tree *tree, Views *views, PyObject *sums, PyObject *starts, PyObject *shift) {
    Py_ssize_t count, size;
    if (!(tree->starts = numbers(views, starts, 'q', 0, 3, &count))) return 0;
    tree->levels = count - 2;
    tree->shift = PyLong_AsLongLong(shift);
    if (PyErr_Occurred() || !(tree->sums = numbers(views, sums, 'd', 1, 0, &size))) return 0;
    if (1 <= tree->shift && tree->shift <= 8 && tree->starts[count - 1] <= size) return 1;
    PyErr_SetString(PyExc_ValueError, "the levels do not match the sums");
    return 0;
}

/* Read the leading six arguments: sums, least, starts, shift, capacity, most. Needs three views. */
static int read_tree(Tree *tree, Views *views, PyObject *const *given) {
    if (!read_levels(tree, views, given[0], given[2], given[3])) return 0;
    if (!(tree->least = numbers(views, given[1], 'd', 1, tree->starts[tree->levels + 1], NULL))) return 0;
    tree->capacity = PyLong_AsLongLong(given[4]);
    tree->most = PyFloat_AsDouble(given[5]);
    return !PyErr_Occurred();
}

INLINE void set_leaf(const Tree *tree, int64_t leaf, double value) {
    tree->sums[leaf] = value;
    tree->least[leaf] = value > 0 ? value : INFINITY;
}

/* Recompute the ancestors of leaves. `groups` contains the leaves, and is overwritten. */
INLINE void refresh_by(const Tree *tree, int64_t *groups, int64_t count, const int shift) {
    const int fanout = 1 << shift;
    double part[FANOUT / 2];
    for (int64_t level = 0; level < tree->levels; level++) {
        const double *sums = tree->sums + tree->starts[level], *least = tree->least + tree->starts[level];
        double *above = tree->sums + tree->starts[level + 1], *above_least = tree->least + tree->starts[level + 1];
        int64_t done = 0, before = -1;
        for (int64_t k = 0; k < count; k++) {
            if (k + AHEAD < count) {
                int64_t next = groups[k + AHEAD] >> shift << shift;
                PREFETCH(sums + next);
                PREFETCH(least + next);
            }
            int64_t group = groups[k] >> shift;
            if (group == before) continue;
            before = group;
            const double *of = sums + (group << shift), *of_least = least + (group << shift);
            double low = INFINITY;
            for (int child = 0; child < fanout; child++) low = of_least[child] < low ? of_least[child] : low;
            for (int child = 0; child < fanout / 2; child++) part[child] = of[2 * child] + of[2 * child + 1];
            for (int width = fanout / 4; width; width /= 2)
                for (int child = 0; child < width; child++) part[child] = part[2 * child] + part[2 * child + 1];
            above[group] = part[0];
            above_least[group] = low;
            groups[done++] = group;
        }
        count = done;
    }
}

static void refresh(const Tree *tree, int64_t *groups, int64_t count) {
    if (tree->shift == 3) refresh_by(tree, groups, count, 3);
    else refresh_by(tree, groups, count, (int)tree->shift);
}

typedef double Pair __attribute__((vector_size(16)));
typedef int64_t Whole __attribute__((vector_size(16)));

/* Find the leaves at cumulative priorities, two at a time. `left` contains these, and is overwritten. */
INLINE void descend_by(const Tree *tree, double *left, int64_t *found, int64_t count, const int shift) {
    const int fanout = 1 << shift;
    memset(found, 0, sizeof(*found) * (size_t)count);
    for (int64_t level = tree->levels - 1; level >= 0; level--) {
        const double *sums = tree->sums + tree->starts[level];
        const double *below = tree->sums + (level ? tree->starts[level - 1] : 0);
        for (int64_t k = 0; k < count; k += 2) {
            int64_t l = k + 1 < count ? k + 1 : k;
            const double *one = sums + (found[k] << shift), *two = sums + (found[l] << shift);
            Pair x = {left[k], left[l]}, ahead = {0, 0}, before = {0, 0};
            Whole chosen = {0, 0};
            for (int child = 0; child < fanout; child++) { /* no branches within eight: a wrong prediction costs more */
                Pair sum = {one[child], two[child]};
                ahead += sum;
                Whole is_left = ahead <= x;
                chosen -= is_left;
                before += (Pair)((Whole)sum & is_left);
                if (fanout > 8 && child % 8 == 7 && chosen[0] <= child && chosen[1] <= child) break;
            }
            for (int lane = 0; lane < 2; lane++) {
                const double *of = lane ? two : one;
                int64_t at = lane ? l : k, here = chosen[lane];
                double past = before[lane];
                if (here == fanout) { /* rounding can lead past the last child with a positive sum */
                    double sum = 0;
                    here = 0; /* of an empty tree: the first child always exists */
                    for (int child = 0; child < fanout; child++) {
                        if (of[child] > 0) here = child, past = sum;
                        sum += of[child];
                    }
                }
                if (lane && l == k) break;
                left[at] = x[lane] - past;
                found[at] = (found[at] << shift) + here;
                if (level) PREFETCH(below + (found[at] << shift));
            }
        }
    }
}

/* Blocks of targets keep their state in the first cache, and overlap their cache misses. */
static void descend_all(const Tree *tree, double *left, int64_t *found, int64_t count) {
    for (int64_t first = 0; first < count; first += BLOCK) {
        int64_t here = count - first < BLOCK ? count - first : BLOCK;
        if (tree->shift == 3) descend_by(tree, left + first, found + first, here, 3);
        else descend_by(tree, left + first, found + first, here, (int)tree->shift);
    }
}

/* change(sums, least, starts, shift, capacity, most, index, values): see `tree_numpy`. */
static PyObject *change(PyObject *self, PyObject *const *given, Py_ssize_t many) {
    Views views;
    Tree tree;
    Py_ssize_t count, wrong = -1;
    const int64_t *index;
    const double *values;
    int64_t *groups = NULL;
    PyObject *result = NULL;
    if (!expect(many, 8) || !reserve(&views, 5)) return NULL;
    if (!read_tree(&tree, &views, given) || !(index = numbers(&views, given[6], 'q', 0, 0, &count)) ||
        !(values = numbers(&views, given[7], 'd', 0, count, NULL)))
        goto end;
    if (!(groups = PyMem_RawMalloc(sizeof(*groups) * (size_t)(count + 1)))) {
        PyErr_NoMemory();
        goto end;
    }
    PyThreadState *others = count > LONG ? PyEval_SaveThread() : NULL;
    for (Py_ssize_t k = 0; k < count && wrong < 0; k++)
        if (!(0 <= index[k] && index[k] < tree.capacity && 0 <= values[k] && values[k] <= tree.most)) wrong = k;
    if (wrong < 0) {
        for (Py_ssize_t k = 0; k < count; k++) set_leaf(&tree, groups[k] = index[k], values[k]);
        refresh(&tree, groups, count);
    }
    if (others) PyEval_RestoreThread(others);
    result = PyLong_FromSsize_t(wrong);
end:
    PyMem_RawFree(groups);
    release(&views);
    return result;
}

/* descend(sums, starts, shift, targets, found): write the leaves at cumulative priorities; overwrite these. */
static PyObject *descend(PyObject *self, PyObject *const *given, Py_ssize_t many) {
    Views views;
    Tree tree;
    Py_ssize_t count;
    double *targets;
    int64_t *found;
    PyObject *result = NULL;
    if (!expect(many, 5) || !reserve(&views, 4)) return NULL;
    if (read_levels(&tree, &views, given[0], given[1], given[2]) &&
        (targets = numbers(&views, given[3], 'd', 1, 0, &count)) &&
        (found = numbers(&views, given[4], 'q', 1, count, NULL))) {
        PyThreadState *others = count > LONG ? PyEval_SaveThread() : NULL;
        descend_all(&tree, targets, found, count);
        if (others) PyEval_RestoreThread(others);
        result = Py_NewRef(Py_None);
    }
    release(&views);
    return result;
}

/* --- the buffer ---------------------------------------------------------------------------------------------- */

/* insert(sums, least, starts, shift, capacity, most, start, priority, columns, rows, kind): write rows, a dictionary
of arrays of the exact type `kind`, into consecutive slots, with one priority. Without a tree, `sums` is None.
Return their number; -1, with nothing changed, if they are not plain: see `Rows.plain`. */
static PyObject *insert(PyObject *self, PyObject *const *given, Py_ssize_t many) {
    Views views;
    Tree tree = {0};
    Py_ssize_t count = -1, fields, position = 0;
    int64_t *groups = NULL;
    PyObject *result = NULL, *name, *column;
    int with_tree = expect(many, 11) && given[0] != Py_None;
    if (PyErr_Occurred()) return NULL;
    PyObject *columns = given[8], *rows = given[9];
    if (!PyDict_CheckExact(columns) || !PyDict_CheckExact(rows)) return PyLong_FromLong(-1);
    fields = PyDict_GET_SIZE(columns);
    if (!fields || PyDict_GET_SIZE(rows) != fields) return PyLong_FromLong(-1);
    if (!reserve(&views, 2 * fields + 3)) return NULL;
    while (PyDict_Next(columns, &position, &name, &column)) {
        PyObject *row = PyDict_GetItemWithError(rows, name);
        if (!row || (PyObject *)Py_TYPE(row) != given[10]) goto unusual;
        Py_buffer *to = view_of(&views, column, PyBUF_STRIDES | PyBUF_FORMAT | PyBUF_WRITABLE);
        Py_buffer *from = to ? view_of(&views, row, PyBUF_STRIDES | PyBUF_FORMAT) : NULL;
        if (!from || from->ndim != to->ndim || strcmp(from->format, to->format)) goto unusual;
        if (count < 0) count = from->shape[0];
        if (from->shape[0] != count || memcmp(from->shape + 1, to->shape + 1, sizeof(Py_ssize_t) * (to->ndim - 1)))
            goto unusual;
        if (row_bytes(from) < 0 || row_bytes(to) < 0) goto unusual;
    }
    int64_t start = PyLong_AsLongLong(given[6]), capacity = PyLong_AsLongLong(given[4]);
    double priority = PyFloat_AsDouble(given[7]);
    if (PyErr_Occurred() || (with_tree && !read_tree(&tree, &views, given))) goto end;
    if (count > capacity || capacity > views.view[0].shape[0] || start < 0 || start >= capacity) goto unusual;
    if (with_tree && !(0 <= priority && priority <= tree.most)) goto unusual;
    if (with_tree && !(groups = PyMem_RawMalloc(sizeof(*groups) * (size_t)(count + 1)))) {
        PyErr_NoMemory();
        goto end;
    }
    PyThreadState *others = count > LONG ? PyEval_SaveThread() : NULL;
    Py_ssize_t split = count < capacity - start ? count : capacity - start;
    if (with_tree) {
        for (Py_ssize_t k = 0; k < count; k++)
            set_leaf(&tree, groups[k] = k < split ? start + k : k - split, priority);
        refresh(&tree, groups, count);
    }
    for (Py_ssize_t field = 0; field < fields; field++) {
        const Py_buffer *to = &views.view[2 * field], *from = to + 1;
        Py_ssize_t bytes = row_bytes(to);
        for (Py_ssize_t k = 0; k < count; k++)
            copy_row((char *)to->buf + (k < split ? start + k : k - split) * to->strides[0],
                     (const char *)from->buf + k * from->strides[0], bytes);
    }
    if (others) PyEval_RestoreThread(others);
    result = PyLong_FromSsize_t(count);
    goto end;
unusual:
    PyErr_Clear();
    result = PyLong_FromLong(-1);
end:
    PyMem_RawFree(groups);
    release(&views);
    return result;
}

/* draw(sums, least, starts, shift, capacity, most, shares, index, serial, weight, inserted, by_batch): draw one entry
from each of equal intervals of the total priority. `shares` contains random numbers, and is overwritten with the
probabilities; `weight` receives the priorities over the least one, of the batch or of the buffer. */
static PyObject *draw(PyObject *self, PyObject *const *given, Py_ssize_t many) {
    Views views;
    Tree tree;
    Py_ssize_t count;
    double *shares, *weight;
    int64_t *index, *serial;
    PyObject *result = NULL;
    if (!expect(many, 12) || !reserve(&views, 7)) return NULL;
    if (!read_tree(&tree, &views, given) || !(shares = numbers(&views, given[6], 'd', 1, 0, &count)) ||
        !(index = numbers(&views, given[7], 'q', 1, count, NULL)) ||
        !(serial = numbers(&views, given[8], 'q', 1, count, NULL)) ||
        !(weight = numbers(&views, given[9], 'd', 1, count, NULL)))
        goto end;
    int64_t inserted = PyLong_AsLongLong(given[10]), start = inserted % tree.capacity;
    int by_batch = PyObject_IsTrue(given[11]);
    if (PyErr_Occurred()) goto end;
    PyThreadState *others = count > LONG ? PyEval_SaveThread() : NULL;
    double total = tree.sums[tree.starts[tree.levels]], least = tree.least[tree.starts[tree.levels]];
    for (Py_ssize_t k = 0; k < count; k++) {
        double share = shares[k] + (double)k;
        share /= (double)count;
        shares[k] = share * total;
    }
    descend_all(&tree, shares, index, count);
    double low = INFINITY;
    for (Py_ssize_t k = 0; k < count; k++) {
        double p = weight[k] = tree.sums[index[k]];
        low = p < low ? p : low;
        shares[k] = p / total;
        serial[k] = index[k] + inserted - start - (index[k] < start ? 0 : tree.capacity);
    }
    least = by_batch ? low : least;
    for (Py_ssize_t k = 0; k < count; k++) weight[k] /= least;
    if (others) PyEval_RestoreThread(others);
    result = Py_NewRef(Py_None);
end:
    release(&views);
    return result;
}

/* gather(columns, index, rows): copy the rows in some slots into arrays, in the order of the columns. */
static PyObject *gather(PyObject *self, PyObject *const *given, Py_ssize_t many) {
    Views views;
    Py_ssize_t count, slots = PY_SSIZE_T_MAX, fields, position = 0;
    const int64_t *index;
    PyObject *result = NULL, *name, *column;
    if (!expect(many, 3)) return NULL;
    if (!PyDict_CheckExact(given[0]) || !PyDict_CheckExact(given[2]))
        return PyErr_Format(PyExc_TypeError, "expected dictionaries of arrays");
    fields = PyDict_GET_SIZE(given[0]);
    if (!reserve(&views, 2 * fields + 1)) return NULL;
    for (Py_ssize_t field = 0; PyDict_Next(given[0], &position, &name, &column); field++) {
        PyObject *row = PyDict_GetItemWithError(given[2], name);
        Py_buffer *from = row ? view_of(&views, column, PyBUF_STRIDES) : NULL;
        Py_buffer *to = from ? view_of(&views, row, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) : NULL;
        if (!to) goto end;
        slots = from->shape[0] < slots ? from->shape[0] : slots;
    }
    if (!(index = numbers(&views, given[1], 'q', 0, 0, &count))) goto end;
    for (Py_ssize_t field = 0; field < fields; field++) {
        Py_ssize_t bytes = row_bytes(&views.view[2 * field]);
        if (bytes < 0 || views.view[2 * field + 1].len != bytes * count) {
            PyErr_SetString(PyExc_TypeError, "the arrays do not match the columns");
            goto end;
        }
    }
    for (Py_ssize_t k = 0; k < count; k++)
        if (index[k] < 0 || index[k] >= slots) {
            PyErr_Format(PyExc_IndexError, "slot %lld is outside of %zd slots", (long long)index[k], slots);
            goto end;
        }
    PyThreadState *others = count > LONG ? PyEval_SaveThread() : NULL;
    for (Py_ssize_t first = 0; first < count; first += AHEAD) {
        Py_ssize_t last = count - first < AHEAD ? count : first + AHEAD;
        Py_ssize_t next = count - last < AHEAD ? count : last + AHEAD;
        for (Py_ssize_t field = 0; field < fields; field++) {
            const Py_buffer *from = &views.view[2 * field], *to = from + 1;
            for (Py_ssize_t k = last; k < next; k++) PREFETCH((const char *)from->buf + index[k] * from->strides[0]);
            Py_ssize_t bytes = row_bytes(from), stride = from->strides[0];
            for (Py_ssize_t k = first; k < last; k++)
                copy_row((char *)to->buf + k * bytes, (const char *)from->buf + index[k] * stride, bytes);
        }
    }
    if (others) PyEval_RestoreThread(others);
    result = Py_NewRef(Py_None);
end:
    if (!result && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "an array of the rows is missing");
    release(&views);
    return result;
}

/* update(sums, least, starts, shift, capacity, most, serial, values, inserted): set the priorities of rows by their
serial numbers. Return False, with nothing changed, if a row is gone, a priority is out of range or an array has
another type. */
static PyObject *update(PyObject *self, PyObject *const *given, Py_ssize_t many) {
    Views views;
    Tree tree;
    Py_ssize_t count;
    const int64_t *serial;
    const double *values;
    int64_t *groups = NULL;
    PyObject *result = NULL;
    if (!expect(many, 9) || !reserve(&views, 5)) return NULL;
    int64_t inserted = PyLong_AsLongLong(given[8]);
    if (PyErr_Occurred() || !read_tree(&tree, &views, given)) goto end;
    if (!(serial = numbers(&views, given[6], 'q', 0, 0, &count)) ||
        !(values = numbers(&views, given[7], 'd', 0, count, NULL))) {
        PyErr_Clear();
        result = Py_NewRef(Py_False);
        goto end;
    }
    if (!(groups = PyMem_RawMalloc(sizeof(*groups) * (size_t)(count + 1)))) {
        PyErr_NoMemory();
        goto end;
    }
    PyThreadState *others = count > LONG ? PyEval_SaveThread() : NULL;
    int right = 1;
    int64_t start = inserted % tree.capacity, first = inserted < tree.capacity ? 0 : inserted - tree.capacity;
    for (Py_ssize_t k = 0; k < count && right; k++) {
        right = first <= serial[k] && serial[k] < inserted && 0 <= values[k] && values[k] <= tree.most;
        int64_t leaf = serial[k] - (inserted - start); /* a remainder without a division */
        groups[k] = leaf < 0 ? leaf + tree.capacity : leaf;
    }
    if (right) {
        for (Py_ssize_t k = 0; k < count; k++) set_leaf(&tree, groups[k], values[k]);
        refresh(&tree, groups, count);
    }
    if (others) PyEval_RestoreThread(others);
    result = PyBool_FromLong(right);
end:
    PyMem_RawFree(groups);
    release(&views);
    return result;
}

#define METHOD(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}
static PyMethodDef methods[] = {METHOD(change), METHOD(descend), METHOD(insert), METHOD(draw),
                                METHOD(gather), METHOD(update),  {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_replay", "Replay buffer in C.", -1, methods};

PyMODINIT_FUNC PyInit__replay(void) {
    PyObject *made = PyModule_Create(&module);
    if (made && PyModule_AddIntConstant(made, "SOURCE", SOURCE)) Py_CLEAR(made);
    return made;
}
