"""English words for filler text, objects and word-pair values."""

ADJECTIVES = """old young small large quiet loud bright dark heavy light warm cold early late narrow wide round square flat
steep rough smooth soft hard sharp blunt clean dusty wet dry fresh stale plain fancy gentle bold brave shy calm busy lazy
quick slow tall short thick thin deep shallow empty full hollow solid broken whole ancient modern wooden golden silver
copper iron leather paper woollen cotton velvet marble amber crimson scarlet green blue yellow purple orange violet grey
white black brown pink pale hidden open closed distant nearby northern southern eastern western foreign local common rare
simple curious clever honest patient stubborn cheerful gloomy sleepy hungry thirsty famous unknown lucky careful careless
silent noisy crowded lonely polite rude strange familiar ordinary special public private spare final first second third
last next previous upper lower inner outer left right hidden painted folded locked polished frozen melted roasted salted
smoked spiced sweet sour bitter mild creamy crisp tender""".split()

NOUNS = """table chair lamp kettle basket bucket ladder hammer shovel broom candle mirror carpet curtain pillow blanket
bottle jar bowl plate spoon fork knife pan oven stove shelf drawer cupboard box trunk barrel crate sack rope chain anchor
boat canoe raft bicycle wagon cart wheel engine pump pipe tank clock watch compass map atlas book diary letter stamp
envelope pencil brush canvas statue violin flute drum trumpet piano guitar bell whistle jacket coat scarf hat glove boot
sandal belt ribbon button needle thread cloth tent backpack umbrella lantern torch camera radio telescope microscope
magnet battery cable antenna keyboard printer scanner robot drone kite balloon puzzle doll marble dice card coin medal
crown ring necklace bracelet pearl garden orchard meadow forest river lake pond bridge tunnel tower wall fence gate
path road street square market harbour island beach cliff cave valley hill mountain glacier desert swamp field farm barn
stable mill cottage cabin castle palace temple church school library museum theatre gallery station airport hospital
kitchen cellar attic balcony corridor staircase chimney roof window door floor ceiling corner apple pear plum cherry
peach lemon grape melon berry fig olive onion garlic carrot potato tomato pepper cabbage spinach bean pea lentil rice
bread cheese butter honey soup stew pie cake biscuit tea coffee juice cider horse cow goat sheep pig hen goose duck owl
hawk eagle raven sparrow robin swan heron otter badger fox wolf bear deer hare mouse squirrel beaver turtle lizard frog
salmon trout whale dolphin crab bee moth spider oak pine maple willow birch cedar elm rose tulip daisy lily fern moss
storm cloud rain snow wind fog thunder sunrise sunset season winter summer spring autumn evening morning night week month
story poem song speech lesson question answer letter report plan idea dream memory secret promise journey holiday party
game match race prize crowd neighbour teacher farmer baker sailor painter doctor lawyer soldier singer dancer writer
carpenter mason tailor butcher fisherman gardener driver pilot traveller stranger visitor student child cousin uncle
aunt grandmother king queen prince judge mayor clerk guard thief merchant""".split()

VERBS = """carried dropped lifted pushed pulled painted cleaned repaired built broke found lost bought sold borrowed
returned counted measured weighed watched heard followed passed crossed climbed reached left entered visited remembered
forgot described mentioned explained ignored noticed admired feared loved missed wanted needed used moved turned closed
opened locked covered filled emptied washed dried folded cut tied burned cooked tasted served shared collected gathered
planted watered picked dug buried hid showed sent received wrote read copied signed printed drew sketched photographed
studied taught learned practised played won started finished stopped changed improved spoiled saved wasted protected
guarded attacked chased caught released fed trained rode drove sailed steered repeated questioned answered praised
blamed thanked greeted invited joined helped""".split()

ADVERBS = """slowly quickly quietly loudly gladly sadly carefully carelessly often rarely sometimes always never usually
twice once again soon later early yesterday today tonight everywhere nowhere somewhere outside inside upstairs
downstairs together alone gently firmly suddenly gradually finally certainly probably perhaps almost nearly hardly
barely mostly partly exactly roughly simply""".split()

PLACES = """behind the {n}|near the {n}|under the {n}|next to the {n}|in front of the {n}|above the {n}|beside the {n}
across from the {n}|inside the {n}|around the {n}|beyond the {n}|along the {n}|at the edge of the {n}|on the far side of the {n}
between the {n} and the {m}|not far from the {n}|on top of the {n}|at the foot of the {n}|past the {n}|through the {n}"""
PLACES = [place.strip() for line in PLACES.splitlines() for place in line.split("|")]
