"""Twelve varied prompts, short enough that prompt and 100 tokens stay under 256 cells.

A cache grows in steps of 256 cells, and from 512 on llama.cpp evaluates a lone token in another way than
several, which rounds differently. Under 256 tokens plain and speculative texts are the same to the bit.
"""

PROMPTS = [
    "Once upon a time, in a village by the sea,",
    "class Stack:\n    def __init__(self):\n        self.items = []\n",
    "The three most important rivers of Europe are",
    "1, 2, 3, 5, 8, 13,",
    '{"name": "Ada", "age": 36}\n{"name": "Alan", "age": 41}\n{"name": "Grace", "age": 45}\n',
    "<ul>\n  <li>apples</li>\n  <li>pears</li>\n  <li>plums</li>\n",
    "Dear Sir or Madam,\n\nI am writing to complain about",
    "Photosynthesis is the process by which plants",
    "Il était une fois une petite fille qui",
    "She said: “No.” He said: “Yes.” She said: “No.” He said:",
    "In the year 2150, people live on",
    "東京は日本の首都です。",
]
