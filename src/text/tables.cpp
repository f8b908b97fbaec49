#include "src/text/tables.h"

#include "src/base/error.h"
#include "src/text/pipeline.h"

namespace tealight {

std::unique_ptr<MadeTables> make_tables(const Tokenizer& tokenizer) {
  const auto* t = dynamic_cast<const PipelineTokenizer*>(&tokenizer);
  TEALIGHT_CHECK(t);
  auto made = std::make_unique<MadeTables>();
  const VocabTables v = t->vocab->tables();
  made->facts = *v.facts;
  made->facts.marks_lead = t->vocab->marks_lead() ? PieceFacts::yes : PieceFacts::no;
  for (const AddedToken& a : t->list_added()) made->added.push_back(uint32_t(a.id));
  for (TokenId id : t->end_tokens) made->ends.push_back(uint32_t(id));
  TokenizerTables& out = made->tables;
  out[TokenizerTables::piece_begins] = t->vocab->pieces.begins();
  out[TokenizerTables::piece_slots] = v.slots;
  out[TokenizerTables::piece_facts] = {reinterpret_cast<const uint32_t*>(&made->facts), sizeof made->facts / 4};
  out[TokenizerTables::added] = made->added;
  out[TokenizerTables::ends] = made->ends;
  t->model->tables(out);
  return made;
}

}  // namespace tealight
