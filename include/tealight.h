/* Language models for programs in any language: load, generate, embed, free.
 *
 * Every function that can fail returns a tealight_status; tealight_message() then says what, where and what was expected.
 * Text is UTF-8 and comes with its length; text that is given out also ends with a NUL byte.
 *
 * Threads: one call at a time for a model. Calls on different models may run at the same time, and a model may be used by one thread
 * after the other. Evaluation uses threads of its own. After fork() only the parent may go on using a model.
 *
 * Link with libtealight_api.a, the C++ library and threads: cc program.c -ltealight_api -lstdc++ -lm -lpthread
 */
#ifndef TEALIGHT_H
#define TEALIGHT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when a function changes its meaning; functions that are added leave it. Compare with tealight_abi(). */
#define TEALIGHT_ABI 1

typedef enum tealight_status {
  TEALIGHT_OK = 0,
  TEALIGHT_USAGE = 1,       /* a wrong argument of a function */
  TEALIGHT_FILE = 2,        /* cannot be opened, read or mapped */
  TEALIGHT_FORMAT = 3,      /* a file that is damaged or hostile */
  TEALIGHT_UNSUPPORTED = 4, /* a file or a request that is sound but beyond this version */
  TEALIGHT_MODEL = 5,       /* weights that do not fit their description */
  TEALIGHT_TOKENIZER = 6,
  TEALIGHT_TEMPLATE = 7,    /* the chat template is missing or fails */
  TEALIGHT_REQUEST = 8,     /* a request that cannot be answered as it is */
  TEALIGHT_MEMORY = 9,
  TEALIGHT_INTERNAL = 10    /* a mistake of ours */
} tealight_status;

typedef struct tealight_model tealight_model;

/* Zero every field that is not meant: tealight_options o = {0}; o.size = sizeof o; */
typedef struct tealight_options {
  size_t size;              /* sizeof(tealight_options), which tells versions apart */
  int threads;              /* 0: the CPUs that the process may use */
  int context;              /* tokens; 0: the model's own, within the memory there is */
  int batch;                /* prompt tokens evaluated together; 0: 512 */
} tealight_options;

int tealight_abi(void);
const char *tealight_version(void);

/* The message of the last call of this thread that failed; valid until its next call. Never NULL. */
const char *tealight_message(void);

/* path: a .gguf, a .safetensors beside its config.json, or a Hugging Face directory. options may be NULL. *model is NULL after an error. */
tealight_status tealight_load(const char *path, const tealight_options *options, tealight_model **model);

/* Takes the next piece of an answer: whole characters, `bytes` of them. Another value than 0 ends the answer. */
typedef int (*tealight_sink)(void *context, const char *text, size_t bytes);

/* Answers a request: a JSON object with the fields of OpenAI's chat completions (messages) or completions (prompt), as `tealight stdio
 * --help` lists them. sink may be NULL. *answer: the answer as a JSON object (choices, usage); it belongs to the model and is valid until
 * its next call; answer and answer_bytes may be NULL. */
tealight_status tealight_generate(tealight_model *model, const char *request, size_t request_bytes, tealight_sink sink, void *context,
                                  const char **answer, size_t *answer_bytes);

/* The embedding of a text, of length one. *values: *count numbers that belong to the model, valid until its next call.
 * TEALIGHT_UNSUPPORTED: the model's file does not say how to make one. */
tealight_status tealight_embed(tealight_model *model, const char *text, size_t text_bytes, const float **values, size_t *count);

/* NULL is fine. */
void tealight_free(tealight_model *model);

#ifdef __cplusplus
}
#endif
#endif
