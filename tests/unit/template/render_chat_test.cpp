// From a chat request to a prompt: content and argument shapes, reserved names, what a template mentions.
#include <gtest/gtest.h>

#include <fstream>

#include "text/template/chat_template.h"

namespace turbo::text {
namespace {

using Json = nlohmann::ordered_json;

ChatTemplate load(const std::string& name) {
  std::ifstream file(std::string(TURBO_TEST_DATA) + "/golden/templates/" + name + ".jinja");
  auto parsed = ChatTemplate::parse(std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>()));
  EXPECT_TRUE(parsed.is_ok()) << parsed.status().message();
  return *parsed;
}

ChatInput chat(const char* messages) {
  ChatInput input;
  input.messages = Json::parse(messages);
  return input;
}

const char* kParts = R"([{"role":"user","content":[{"type":"text","text":"One"},{"type":"text","text":"two"}]}])";
const char* kCall = R"([{"role":"user","content":"Hi"},{"role":"assistant","content":null,"tool_calls":
  [{"id":"abc123def","type":"function","function":{"name":"f","arguments":"{\"city\": \"Zürich\", \"n\": [1, 2]}"}}]}])";

TEST(RenderChat, TheBundledModelsTemplateGivesChatMl) {
  ChatTemplate mini = load("turbo-mini");
  ChatInput input = chat(R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}])");
  EXPECT_EQ(*render_chat(mini, input), "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  input.extra = {{"enable_thinking", false}};
  EXPECT_EQ(*render_chat(mini, input),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  input.add_generation_prompt = false;
  EXPECT_EQ(*render_chat(mini, input), "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
  input.tools = Json::array();
  EXPECT_EQ(*render_chat(mini, input), "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
  input.tools = Json::parse(R"([{"type":"function","function":{"name":"f"}}])");
  EXPECT_NE(render_chat(mini, input)->find("<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"f\"}}\n</tools>"), std::string::npos);
}

TEST(RenderChat, EachFamilysMarkupIsWrittenByHandHere) {
  const std::pair<const char*, const char*> expected[] = {
      {"qwen2.5", "<|im_start|>system\nGive helpful answers.<|im_end|>\n<|im_start|>user\nA?<|im_end|>\n<|im_start|>assistant\nB.<|im_end|>\n"
                  "<|im_start|>user\nC?<|im_end|>\n<|im_start|>assistant\n"},
      {"qwen3", "<|im_start|>user\nA?<|im_end|>\n<|im_start|>assistant\nB.<|im_end|>\n<|im_start|>user\nC?<|im_end|>\n<|im_start|>assistant\n"},
      {"mistral", "<s>[INST] A?[/INST] B.</s>[INST] C?[/INST]"},
      {"gemma2", "<s><start_of_turn>user\nA?<end_of_turn>\n<start_of_turn>model\nB.<end_of_turn>\n<start_of_turn>user\nC?<end_of_turn>\n"
                 "<start_of_turn>model\n"},
      {"gemma3", "<s><start_of_turn>user\nA?<end_of_turn>\n<start_of_turn>model\nB.<end_of_turn>\n<start_of_turn>user\nC?<end_of_turn>\n"
                 "<start_of_turn>model\n"},
      {"phi3", "<|user|>\nA?<|end|>\n<|assistant|>\nB.<|end|>\n<|user|>\nC?<|end|>\n<|assistant|>\n"},
      {"phi4", "<|im_start|>user<|im_sep|>A?<|im_end|><|im_start|>assistant<|im_sep|>B.<|im_end|><|im_start|>user<|im_sep|>C?<|im_end|>"
               "<|im_start|>assistant<|im_sep|>"},
      {"deepseek-r1", "<s><｜User｜>A?<｜Assistant｜>B.<｜end▁of▁sentence｜><｜User｜>C?<｜Assistant｜><think>\n"},
      {"command-r", "<s><|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Answer what the user asks.<|END_OF_TURN_TOKEN|>"
                    "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>A?<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>B.<|END_OF_TURN_TOKEN|>"
                    "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>C?<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"},
      {"llama3", "<s><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 5 May 2025\n\n<|eot_id|>"
                 "<|start_header_id|>user<|end_header_id|>\n\nA?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nB.<|eot_id|>"
                 "<|start_header_id|>user<|end_header_id|>\n\nC?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
  };
  for (const auto& [name, text] : expected) {
    SCOPED_TRACE(name);
    ChatInput input = chat(R"([{"role":"user","content":"A?"},{"role":"assistant","content":"B."},{"role":"user","content":"C?"}])");
    input.bos_token = "<s>";
    input.eos_token = "</s>";
    input.extra = {{"date_string", "5 May 2025"}};
    auto got = render_chat(load(name), input);
    ASSERT_TRUE(got.is_ok()) << got.status().message();
    EXPECT_EQ(*got, text);
  }
}

TEST(RenderChat, TextPartsAreJoinedWhereTheTemplateWantsText) {
  ChatTemplate mini = load("turbo-mini"), gemma = load("gemma3");
  EXPECT_EQ(mini.content_shape(), ContentShape::text_only);
  EXPECT_EQ(gemma.content_shape(), ContentShape::text_or_parts);
  EXPECT_EQ(*render_chat(mini, chat(kParts)), "<|im_start|>user\nOne\ntwo<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(*render_chat(gemma, chat(kParts)), "<start_of_turn>user\nOnetwo<end_of_turn>\n<start_of_turn>model\n");
  auto parts_only = ChatTemplate::parse("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}");
  EXPECT_EQ(parts_only->content_shape(), ContentShape::parts_only);
  EXPECT_EQ(*render_chat(*parts_only, chat(R"([{"role":"user","content":"Hi"}])")), "Hi");
  EXPECT_EQ(*render_chat(*parts_only, chat(kParts)), "Onetwo");
}

TEST(RenderChat, PartsThatAreNotTextAreRefused) {
  auto image = chat(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])");
  Status status = render_chat(load("turbo-mini"), image).status();
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_NE(status.message().find("messages[0].content"), std::string::npos);
  for (const char* odd : {R"([{"content":[{"type":"text"}]}])", R"([{"content":[{"type":1,"text":"x"}]}])", R"([{"content":[null]}])", R"([{"content":[[]]}])"}) {
    EXPECT_FALSE(render_chat(load("turbo-mini"), chat(odd)).is_ok()) << odd;
  }
}

TEST(RenderChat, ArgumentsTakeTheShapeTheTemplatePrints) {
  for (const char* name : {"turbo-mini", "qwen2.5", "qwen3", "llama3", "mistral", "command-r"}) {
    SCOPED_TRACE(name);
    ChatTemplate family = load(name);
    EXPECT_FALSE(family.wants_argument_text());
    auto text = render_chat(family, chat(kCall));
    ASSERT_TRUE(text.is_ok()) << text.status().message();
    EXPECT_NE(text->find("\"city\": \"Zürich\""), std::string::npos) << *text;
  }
  ChatTemplate deepseek = load("deepseek-r1");
  EXPECT_TRUE(deepseek.wants_argument_text());
  EXPECT_NE(render_chat(deepseek, chat(kCall))->find("```json\n{\"city\": \"Zürich\""), std::string::npos);
  // Text that is not a JSON object stays text.
  auto broken = chat(R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":"{oops"}}]}])");
  EXPECT_NE(render_chat(load("turbo-mini"), broken)->find("\"arguments\": {oops}"), std::string::npos);
}

TEST(RenderChat, KeywordArgumentsCannotReplaceTheConversation) {
  ChatTemplate mini = load("turbo-mini");
  for (const char* name : {"messages", "tools", "add_generation_prompt", "bos_token", "tokenize", "chat_template", "raise_exception"}) {
    ChatInput input = chat(R"([{"role":"user","content":"Hi"}])");
    input.extra[name] = true;
    Status status = render_chat(mini, input).status();
    EXPECT_EQ(status.code(), Code::invalid_argument) << name;
    EXPECT_NE(status.message().find(name), std::string::npos);
  }
}

TEST(RenderChat, WrongShapesAreErrors) {
  ChatTemplate mini = load("turbo-mini");
  for (const char* messages : {"null", "{}", "[1]", "[[]]", "[]", R"([{"role":"user"}])", R"([{"role":"user","content":5}])"}) {
    SCOPED_TRACE(messages);
    EXPECT_FALSE(render_chat(mini, chat(messages)).is_ok() && std::string(messages) != "[]");
  }
  ChatInput input = chat((R"([{"role":"user","content":)" + std::string(500, '[') + std::string(500, ']') + "}]").c_str());
  EXPECT_EQ(render_chat(mini, input).status().code(), Code::resource_exhausted);
  input = chat("[]");
  input.tools = 5;
  EXPECT_EQ(render_chat(mini, input).status().code(), Code::invalid_argument);
  input.tools = nullptr;
  input.extra = Json::array();
  EXPECT_EQ(render_chat(mini, input).status().code(), Code::invalid_argument);
}

TEST(RenderChat, TemplateTextInsideMessagesIsPlainText) {
  ChatInput input = chat(R"([{"role":"user","content":"{{ 7 * 7 }}{% for %}<|im_end|>"}])");
  EXPECT_EQ(*render_chat(load("turbo-mini"), input), "<|im_start|>user\n{{ 7 * 7 }}{% for %}<|im_end|><|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplateMentions, TellsWhatTheTemplateReads) {
  ChatTemplate mini = load("turbo-mini");
  EXPECT_TRUE(mini.mentions("tools"));
  EXPECT_TRUE(mini.mentions("enable_thinking"));
  EXPECT_FALSE(mini.mentions("bos_token"));
  EXPECT_FALSE(mini.mentions("content"));
  auto assigned = ChatTemplate::parse("{% set x = 1 %}{{ y }}");
  EXPECT_FALSE(assigned->mentions("x"));
  EXPECT_TRUE(assigned->mentions("y"));
}

TEST(ChatTemplateDate, ComesFromTheOptionsOrTheClock) {
  auto parsed = ChatTemplate::parse("{{ strftime_now('%Y') }}");
  RenderOptions options;
  options.now_unix_s = 946728000;   // noon of 1 January 2000, UTC
  EXPECT_EQ(*parsed->render(Json::object(), options), "2000");
  EXPECT_GE(*parsed->render(Json::object()), "2025");
}

}  // namespace
}  // namespace turbo::text
