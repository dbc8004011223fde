// What a codec in a shared library says to geomx: the whole interface, version 2.
//
// A plugin that is not part of geomx's own build compiles a codec against this header alone and names the
// library in what its hook returns: geomx.Native("codec", "mine", options, library="/path/to/mine.so").
// The functions below are plain C, so that compiler and standard library need not be geomx's. C++ codecs
// derive nothing: they have the four methods that `GEOMX_CODEC` at the end asks for.
//
//   sender     Make -> Layout -> Encode            receiver     Make -> Layout -> Decode
//
// A codec turns a vector of float32 values into parts. Parts of one item per row are cut into slices
// between rows; a part that is GEOMX_WHOLE stays in one piece and rides in the first slice, or in each of
// them (GEOMX_IN_EVERY_SLICE: for scales). A part may have one item per `span` rows, for example the scale of
// a chunk of values, or all that was selected of it in bits of the codec's own; slices are then cut between
// chunks, and the last chunk may have fewer rows. geomx allocates every part by what the layout promised, so a
// promise cannot be broken. Codecs that choose rows promise fewer rows than there are values, and a part
// "indices" of 32 bits; they must be the first on their link. Parts of codecs before this one pass by.
//
// A codec is GEOMX_LINEAR if encodings of several senders add up: all its parts are float32, it chooses no
// rows, and the sum of what was encoded decodes to the sum of what each decodes to. Servers then add parts as
// they come. Where the sum is handed back, `settle` hears it after it was decoded.
//
// One codec object serves one shard on one link and is never called by two threads at once. Nothing here
// takes Python's interpreter lock. No function may throw or exit; those that return text return NULL when
// all is well, and otherwise say what is wrong (the text must live until the next call). In C++ exceptions
// do that: GEOMX_CODEC returns what they say.
//
// `decode` gets bytes that came over a network. Those that `encode` does not make it decodes to something,
// or refuses: by text that begins with GEOMX_REFUSED, in C++ by throwing geomx::plugin::Refused. The peer that
// sent them is then at fault; any other text, and any other exception, is the codec's own failure.
#ifndef GEOMX_CODEC_H
#define GEOMX_CODEC_H

#include <stddef.h>
#include <stdint.h>

#define GEOMX_CODEC_ABI 2u
#define GEOMX_REFUSED "refused: "
#define GEOMX_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

// Flags of a codec.
enum {
  GEOMX_SURVIVES_HOLES = 1,  // any slice can be decoded without the others
  GEOMX_FIXED_SIZE = 2,      // the layout depends on the number of values alone
  GEOMX_LINEAR = 4           // what it encodes may be added up; the table then has `settle`
};

// Flags of a part.
enum { GEOMX_WHOLE = 1, GEOMX_IN_EVERY_SLICE = 2 };

enum { GEOMX_MOST_PARTS = 8 };

typedef struct {
  const char* name;
  double value;
} geomx_option;

typedef struct {
  char name[16];   // zero-terminated; "indices" is for codecs that choose rows
  uint32_t bits;   // of an item: a multiple of 8
  uint32_t flags;
  uint64_t items;  // of a whole part
  uint64_t span;   // of others: one item per so many rows, a multiple of 8; 0: one per row
} geomx_part;

typedef struct {
  uint64_t values;  // given: how many there are
  uint64_t rows;    // of the parts that are cut; given as `values`
  uint32_t count;   // of parts
  geomx_part parts[GEOMX_MOST_PARTS];
} geomx_layout;

typedef struct {
  uint32_t abi;  // GEOMX_CODEC_ABI
  uint32_t flags;
  // A codec for a shard of so many elements; NULL with words in `error` if the options are wrong.
  void* (*make)(const geomx_option* options, size_t count, uint64_t elements, char* error,
                size_t error_bytes);
  void (*drop)(void* codec);
  const char* (*layout)(const void* codec, uint64_t round, geomx_layout* layout);
  // Fills parts[i], which has the size that the layout promised for it.
  const char* (*encode)(void* codec, uint64_t round, const float* values, uint64_t count,
                        void* const* parts);
  // Fills `count` values from the rows of one slice, of which `first_row` is the first; parts[i] is NULL
  // where a whole part is not in this slice. Parts lie in a message one behind the other, so an item may begin
  // at any address: copy items of more than a byte with memcpy. Those of `encode` are aligned.
  const char* (*decode)(const void* codec, uint64_t round, uint64_t first_row,
                        const void* const* parts, float* values, uint64_t count);
  // Of linear codecs alone: what all encodings of a round came to. May be NULL.
  const char* (*settle)(void* codec, uint64_t round, const void* const* parts);
} geomx_codec;

// The one name that a library must have; GEOMX_CODEC defines it.
GEOMX_EXPORT const geomx_codec* geomx_codec_table(void);

#ifdef __cplusplus
}  // extern "C"

#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>

namespace geomx {
// Hidden: otherwise all libraries of a process whose classes have one name would share one table.
namespace plugin __attribute__((visibility("hidden"))) {

using Options = std::map<std::string, double>;

// Thrown by `Decode`: these bytes are nothing that `Encode` makes. `why` is for a sentence.
class Refused : public std::runtime_error {
 public:
  explicit Refused(const std::string& why) : std::runtime_error(GEOMX_REFUSED + why) {}
};

// Adds a part to a layout. Throws if the layout has GEOMX_MOST_PARTS, or if the name has more than 15 letters.
inline void AddPart(geomx_layout* layout, const char* name, uint32_t bits, uint32_t flags = 0,
                    uint64_t items = 0, uint64_t span = 0) {
  if (layout->count >= GEOMX_MOST_PARTS) {
    throw std::length_error("part " + std::string(name) + " is one too many: a layout has at most " +
                            std::to_string(int{GEOMX_MOST_PARTS}));
  }
  geomx_part& part = layout->parts[layout->count];
  if (std::strlen(name) >= sizeof part.name) {
    throw std::length_error("part " + std::string(name) + " needs a name of at most " +
                            std::to_string(sizeof part.name - 1) + " letters");
  }
  ++layout->count;
  std::snprintf(part.name, sizeof part.name, "%s", name);
  part.bits = bits;
  part.flags = flags;
  part.items = items;
  part.span = span;
}

// Calls a C++ function from C: what it throws is returned as text.
template <class Function>
const char* Spoken(Function&& function) {
  thread_local std::string words;
  try {
    function();
    return nullptr;
  } catch (const std::exception& error) {
    words = error.what();
  } catch (...) {
    words = "an unknown exception";
  }
  return words.c_str();
}

template <class Class, bool linear>
struct Settling {
  static constexpr auto Function() -> const char* (*)(void*, uint64_t, const void* const*) {
    return nullptr;
  }
};

template <class Class>
struct Settling<Class, true> {
  static constexpr auto Function() -> const char* (*)(void*, uint64_t, const void* const*) {
    return [](void* codec, uint64_t round, const void* const* parts) {
      return Spoken([&] { static_cast<Class*>(codec)->Settle(round, parts); });
    };
  }
};

// Class: a constructor (const Options&, uint64_t elements), `static constexpr uint32_t kFlags`, and
//   void Layout(uint64_t round, geomx_layout* layout) const;
//   void Encode(uint64_t round, const float* values, uint64_t count, void* const* parts);
//   void Decode(uint64_t round, uint64_t first_row, const void* const* parts, float* values,
//               uint64_t count) const;
// and, where kFlags has GEOMX_LINEAR,
//   void Settle(uint64_t round, const void* const* parts);
template <class Class>
const geomx_codec* Table() {
  static const geomx_codec table = {
      GEOMX_CODEC_ABI,
      Class::kFlags,
      [](const geomx_option* options, size_t count, uint64_t elements, char* error,
         size_t error_bytes) -> void* {
        Class* made = nullptr;
        const char* words = Spoken([&] {
          Options named;
          for (size_t i = 0; i < count; ++i) named[options[i].name] = options[i].value;
          made = new Class(named, elements);
        });
        if (words != nullptr) std::snprintf(error, error_bytes, "%s", words);
        return made;
      },
      [](void* codec) { delete static_cast<Class*>(codec); },
      [](const void* codec, uint64_t round, geomx_layout* layout) {
        return Spoken([&] { static_cast<const Class*>(codec)->Layout(round, layout); });
      },
      [](void* codec, uint64_t round, const float* values, uint64_t count, void* const* parts) {
        return Spoken([&] { static_cast<Class*>(codec)->Encode(round, values, count, parts); });
      },
      [](const void* codec, uint64_t round, uint64_t first_row, const void* const* parts,
         float* values, uint64_t count) {
        return Spoken([&] {
          static_cast<const Class*>(codec)->Decode(round, first_row, parts, values, count);
        });
      },
      Settling<Class, (Class::kFlags & GEOMX_LINEAR) != 0>::Function()};
  return &table;
}

}  // namespace plugin
}  // namespace geomx

#define GEOMX_CODEC(Class) \
  extern "C" const geomx_codec* geomx_codec_table(void) { return geomx::plugin::Table<Class>(); }
#endif  // __cplusplus

#endif  // GEOMX_CODEC_H
