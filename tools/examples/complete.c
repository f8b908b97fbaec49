/* The C interface: loads a model, writes an answer as it comes, and an embedding where the model makes one.
 * usage: complete MODEL PROMPT */
#include <stdio.h>
#include <string.h>
#include <tealight.h>

static int print(void *context, const char *text, size_t bytes) {
  (void)context;
  fwrite(text, 1, bytes, stdout);
  return fflush(stdout);
}

int main(int argc, char **argv) {
  if (argc != 3 || strpbrk(argv[2], "\"\\\n")) {
    fprintf(stderr, "usage: complete MODEL PROMPT (without quotes, backslashes and line ends)\n");
    return 2;
  }
  tealight_options options = {0};
  options.size = sizeof options;
  tealight_model *model;
  if (tealight_load(argv[1], &options, &model) != TEALIGHT_OK) {
    fprintf(stderr, "%s\n", tealight_message());
    return 1;
  }
  char request[4096];
  const int length = snprintf(request, sizeof request, "{\"prompt\":\"%s\",\"temperature\":0,\"max_tokens\":12}", argv[2]);
  const char *answer;
  if (length >= (int)sizeof request || tealight_generate(model, request, (size_t)length, print, NULL, &answer, NULL) != TEALIGHT_OK) {
    fprintf(stderr, "%s\n", tealight_message());
    tealight_free(model);
    return 1;
  }
  printf("\n%s\n", answer);

  const float *values;
  size_t count;
  if (tealight_embed(model, argv[2], strlen(argv[2]), &values, &count) == TEALIGHT_OK) printf("embedding of %zu values\n", count);
  else printf("no embedding: %s\n", tealight_message());
  tealight_free(model);
  return 0;
}
