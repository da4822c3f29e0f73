/* Calls a SavedModel from C: strings in, answers out, no Python.

     run_saved_model --libraries=tensorflow_text/python/ops \
         servables/mrpc/1 serving_default \
         sentence1="He ran." sentence2="He was running."

   An input given several times is a batch. --libraries is a folder of shared
   objects with operations beyond TensorFlow's own: those of tensorflow_text.
   test_c_api.py builds it. */

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

enum { MAX_TENSORS = 64, NAME_SIZE = 256 };

/* An input or output of a signature: the client's name and the graph's. */
typedef struct {
  char key[NAME_SIZE];
  char operation[NAME_SIZE];
  int index;
} Endpoint;

typedef struct {
  Endpoint inputs[MAX_TENSORS], outputs[MAX_TENSORS];
  int num_inputs, num_outputs;
} Signature;

static void fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void check(const TF_Status* status, const char* what) {
  if (TF_GetCode(status) != TF_OK) fail(what, TF_Message(status));
}

/* --- The signature, from the serialized MetaGraphDef. --- */

/* Bytes of a message that are still to be read. */
typedef struct {
  const uint8_t* next;
  const uint8_t* end;
} Message;

static uint64_t read_varint(Message* message) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (message->next == message->end) break;
    uint8_t byte = *message->next++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail("MetaGraphDef", "damaged");
  return 0;
}

/* Reads the next field and returns its number, or 0 at the end. `*content` is
   that of a length-delimited field; all others are skipped. */
static int read_field(Message* message, Message* content) {
  if (message->next == message->end) return 0;
  uint64_t tag = read_varint(message);
  uint64_t size = 0;
  int is_message = 0;
  switch (tag & 7) {
    case 0: read_varint(message); break;
    case 1: size = 8; break;
    case 2: size = read_varint(message); is_message = 1; break;
    case 5: size = 4; break;
    default: fail("MetaGraphDef", "damaged");
  }
  if (size > (uint64_t)(message->end - message->next))
    fail("MetaGraphDef", "cut short");
  content->next = message->next;
  content->end = is_message ? message->next + size : message->next;
  message->next += size;
  return (int)(tag >> 3);
}

static void copy_text(Message text, char* destination) {
  size_t size = (size_t)(text.end - text.next);
  if (size >= NAME_SIZE) fail("MetaGraphDef", "a name is too long");
  memcpy(destination, text.next, size);
  destination[size] = '\0';
}

/* Adds a map's entry {1: key, 2: TensorInfo {1: "operation:index"}}. */
static void add_endpoint(Message entry, Endpoint* endpoints, int* count) {
  Message content, part;
  if (*count == MAX_TENSORS) fail("signature", "has too many tensors");
  Endpoint* endpoint = &endpoints[(*count)++];
  memset(endpoint, 0, sizeof *endpoint);
  for (int field; (field = read_field(&entry, &content)) != 0;) {
    if (field == 1) copy_text(content, endpoint->key);
    if (field != 2) continue;
    for (int inner; (inner = read_field(&content, &part)) != 0;)
      if (inner == 1) copy_text(part, endpoint->operation);
  }
  char* colon = strrchr(endpoint->operation, ':');
  if (colon == NULL) fail(endpoint->key, "is not a dense tensor");
  endpoint->index = atoi(colon + 1);
  *colon = '\0';
}

/* MetaGraphDef {5: map of name to SignatureDef {1: inputs, 2: outputs}}. */
static Signature find_signature(const TF_Buffer* buffer, const char* name) {
  const uint8_t* data = buffer->data;
  Message graph = {data, data + buffer->length};
  Message entry, content, tensor;
  for (int field; (field = read_field(&graph, &entry)) != 0;) {
    if (field != 5) continue;
    Message definition = {NULL, NULL};
    char key[NAME_SIZE] = "";
    for (int part; (part = read_field(&entry, &content)) != 0;) {
      if (part == 1) copy_text(content, key);
      if (part == 2) definition = content;
    }
    if (strcmp(key, name) != 0) continue;
    Signature signature = {.num_inputs = 0, .num_outputs = 0};
    for (int part; (part = read_field(&definition, &tensor)) != 0;) {
      if (part == 1)
        add_endpoint(tensor, signature.inputs, &signature.num_inputs);
      if (part == 2)
        add_endpoint(tensor, signature.outputs, &signature.num_outputs);
    }
    return signature;
  }
  fail(name, "is no signature of the SavedModel");
  return (Signature){.num_inputs = 0};
}

static TF_Output find_output(TF_Graph* graph, const Endpoint* endpoint) {
  TF_Output output = {TF_GraphOperationByName(graph, endpoint->operation),
                      endpoint->index};
  if (output.oper == NULL) fail(endpoint->operation, "is not in the graph");
  return output;
}

/* --- Strings in. --- */

/* Makes the tensor of all arguments `key=text`, a string [batch]. */
static TF_Tensor* make_strings(const char* key, char** arguments, int count) {
  int64_t batch = 0;
  size_t key_size = strlen(key);
  char** texts = malloc((size_t)count * sizeof *texts);
  if (texts == NULL) fail(key, "out of memory");
  for (int i = 0; i < count; ++i)
    if (!strncmp(arguments[i], key, key_size) && arguments[i][key_size] == '=')
      texts[batch++] = arguments[i] + key_size + 1;
  if (batch == 0) fail(key, "is not given");
  TF_Tensor* tensor = TF_AllocateTensor(TF_STRING, &batch, 1,
                                        (size_t)batch * sizeof(TF_TString));
  TF_TString* strings = TF_TensorData(tensor);
  for (int64_t i = 0; i < batch; ++i) {
    TF_StringInit(&strings[i]);
    TF_StringCopy(&strings[i], texts[i], strlen(texts[i]));
  }
  free(texts);
  return tensor;
}

/* A tensor does not free the strings that its maker put into it. */
static void delete_strings(TF_Tensor* tensor) {
  TF_TString* strings = TF_TensorData(tensor);
  for (int64_t i = 0; i < TF_TensorElementCount(tensor); ++i)
    TF_StringDealloc(&strings[i]);
  TF_DeleteTensor(tensor);
}

/* --- Answers out. --- */

static void print_element(const TF_Tensor* tensor, int64_t index) {
  const void* data = TF_TensorData(tensor);
  switch (TF_TensorType(tensor)) {
    case TF_FLOAT: printf("%.9g", ((const float*)data)[index]); break;
    case TF_INT32: printf("%" PRId32, ((const int32_t*)data)[index]); break;
    case TF_BOOL: printf("%d", ((const unsigned char*)data)[index]); break;
    case TF_INT64: printf("%" PRId64, ((const int64_t*)data)[index]); break;
    case TF_STRING: {
      const TF_TString* text = &((const TF_TString*)data)[index];
      printf("%.*s", (int)TF_StringGetSize(text),
             TF_StringGetDataPointer(text));
      break;
    }
    default: fail("output", "is of a type that is not printed");
  }
}

/* Prints the rows of a tensor, one per line: name, row, its elements. */
static void print_tensor(const char* name, const TF_Tensor* tensor) {
  int64_t rows = TF_NumDims(tensor) ? TF_Dim(tensor, 0) : 1;
  int64_t columns = rows ? TF_TensorElementCount(tensor) / rows : 0;
  for (int64_t row = 0; row < rows; ++row) {
    printf("%s\t%" PRId64, name, row);
    for (int64_t column = 0; column < columns; ++column) {
      putchar('\t');
      print_element(tensor, row * columns + column);
    }
    putchar('\n');
  }
}

/* Registers the operations of every shared object in a folder. */
static void load_libraries(const char* folder, TF_Status* status) {
  DIR* directory = opendir(folder);
  char path[4096];
  if (directory == NULL) fail(folder, "cannot be read");
  for (struct dirent* entry; (entry = readdir(directory)) != NULL;) {
    const char* end = strrchr(entry->d_name, '.');
    if (end == NULL || strcmp(end, ".so") != 0) continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    TF_DeleteLibraryHandle(TF_LoadLibrary(path, status));
    check(status, path);
  }
  closedir(directory);
}

int main(int argc, char** argv) {
  TF_Status* status = TF_NewStatus();
  int next = 1;
  const char* option = "--libraries=";
  if (argc > next && strncmp(argv[next], option, strlen(option)) == 0)
    load_libraries(argv[next++] + strlen(option), status);
  if (argc - next < 3)
    fail(argv[0],
         "[--libraries=FOLDER] SAVED_MODEL SIGNATURE INPUT=TEXT ...");
  const char* folder = argv[next++];
  const char* signature_name = argv[next++];
  char** texts = argv + next;
  int num_texts = argc - next;

  /* Load: graph, variables and vocabulary, once for all calls. */
  const char* tags[] = {"serve"};
  TF_Graph* graph = TF_NewGraph();
  TF_SessionOptions* options = TF_NewSessionOptions();
  TF_Buffer* meta_graph = TF_NewBuffer();
  TF_Session* session = TF_LoadSessionFromSavedModel(
      options, NULL, folder, tags, 1, graph, meta_graph, status);
  check(status, folder);
  Signature signature = find_signature(meta_graph, signature_name);

  /* Ask. */
  TF_Output inputs[MAX_TENSORS], outputs[MAX_TENSORS];
  TF_Tensor *questions[MAX_TENSORS], *answers[MAX_TENSORS];
  for (int i = 0; i < signature.num_inputs; ++i) {
    inputs[i] = find_output(graph, &signature.inputs[i]);
    questions[i] = make_strings(signature.inputs[i].key, texts, num_texts);
  }
  for (int i = 0; i < signature.num_outputs; ++i)
    outputs[i] = find_output(graph, &signature.outputs[i]);
  TF_SessionRun(session, NULL, inputs, questions, signature.num_inputs,
                outputs, answers, signature.num_outputs, NULL, 0, NULL,
                status);
  check(status, signature_name);
  for (int i = 0; i < signature.num_outputs; ++i)
    print_tensor(signature.outputs[i].key, answers[i]);

  /* Free everything. */
  for (int i = 0; i < signature.num_inputs; ++i) delete_strings(questions[i]);
  for (int i = 0; i < signature.num_outputs; ++i) TF_DeleteTensor(answers[i]);
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteBuffer(meta_graph);
  TF_DeleteSessionOptions(options);
  TF_DeleteGraph(graph);
  TF_DeleteStatus(status);
  return 0;
}
